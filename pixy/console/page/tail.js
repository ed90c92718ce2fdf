// The newest messages of a topic, as they come. Nothing is consumed by it.
const KEPT = 200, PAUSE = 1000, SHOWN = 300;

export default function tail(context) {
  const { root, query, h, format, table, href, go, dom, leave, keys, title } = context;
  const asked = { cluster: query.cluster || "", topic: query.topic || "", partition: query.partition || "" };
  const stamp = (at) => (at ? new Date(at * 1000).toISOString().replace("T", " ") : "–");
  const shown = (value) => {
    if (value === null) return "null";
    const whole = value.text !== undefined ? value.text : `base64 ${value.base64}`;
    return whole.length > SHOWN || value.cut ? `${whole.slice(0, SHOWN)}…` : whole;
  };
  const where = h("input", { type: "search", value: asked.partition ? `${asked.topic}/${asked.partition}` : asked.topic, placeholder: "topic, or topic/partition", "aria-label": "Topic", spellcheck: "false", autocomplete: "off", maxlength: "300" });
  const filter = h("input", { type: "search", placeholder: "only with this text", "aria-label": "Filter", spellcheck: "false", autocomplete: "off", maxlength: "300", oninput: () => show() });
  const form = h("form", { class: "tools", onsubmit: (event) => {
    event.preventDefault();
    const [topic, partition] = where.value.trim().split("/");
    go("tail", { cluster: asked.cluster, topic, partition });
  } }, where, h("button", { type: "submit", class: "button" }, "Watch"), filter);
  const note = h("p", { class: "hint", role: "status" });
  const rows = table([
    { title: "Message", class: "path", text: (row) => `${asked.topic}/${row.partition}/${row.offset}` },
    { title: "Timestamp (UTC)", text: (row) => stamp(row.timestamp) },
    { title: "Key", class: "path wrap", text: (row) => shown(row.key) },
    { title: "Value", class: "path wrap", text: (row) => shown(row.value) },
    { title: "Bytes", class: "num", text: (row) => (row.value_size === null ? "–" : format.count(row.value_size)) },
  ], { label: "Messages", href: (row) => href("trace", { cluster: asked.cluster, topic: asked.topic, partition: row.partition, offset: row.offset }), empty: "No message yet." });
  root.append(form, note, rows.element);
  keys({ "/": () => where.focus() });

  let kept = [], after = "", skipped = 0, timer = null, left = false;
  const show = () => rows.update(kept.filter((row) => !filter.value || `${shown(row.key)} ${shown(row.value)}`.includes(filter.value)));
  const load = async () => {
    if (left) return;
    if (!document.hidden) {
      try {
        const wanted = Object.entries({ ...asked, after }).filter(([, value]) => value !== "");
        const answer = await fetch(new URL(`../tail?${new URLSearchParams(wanted)}`, document.baseURI), { headers: { Accept: "application/json" } });
        const data = await answer.json();
        if (left) return;
        if (!answer.ok) throw new Error(data.error);
        if (after) skipped += data.skipped;
        after = data.after;
        if (data.rows.length) {
          kept = [...data.rows.reverse(), ...kept].slice(0, KEPT);
          show();
        }
        dom.setText(note, `${format.plural(data.partitions, "partition")}${data.hidden ? `, ${format.count(data.hidden)} more are not watched` : ""}; the last ${format.count(kept.length)} messages${skipped ? `, ${format.count(skipped)} came too fast to be shown` : ""}`);
      } catch (error) {
        dom.setText(note, `Not read: ${error.message}`);
      }
    }
    timer = setTimeout(load, PAUSE);
  };
  leave(() => { left = true; clearTimeout(timer); });
  if (!asked.topic) {
    dom.setText(note, "Name a topic.");
    return;
  }
  title(`Tail of ${asked.topic}`);
  rows.update([]);
  load();
}

// The life of one message: what the log, the groups and the journal say, and what nobody knows.
import { waterfall } from "./waterfall.js";

const TONES = { held: "watch", "waits again": "bad", done: "" };
const HIDDEN = new Set(["client", "position", "committed", "owned_since", "first_offered", "last_offered", "deadline", "attempts"]);

export default function trace(context) {
  const { root, query, h, format, table, href, go, dom, title, keys } = context;
  const asked = { cluster: query.cluster || "", topic: query.topic || "", partition: query.partition || "", offset: query.offset || "", key: query.key || "", header: query.header || "" };
  const stamp = (at) => (at ? new Date(at * 1000).toISOString().replace("T", " ") : "–");
  const name = (place) => `${place.topic}/${place.partition}/${place.offset}`;
  const input = (label, value, placeholder) => h("input", { type: "search", value, placeholder, "aria-label": label, spellcheck: "false", autocomplete: "off", maxlength: "1000" });
  const where = input("Message", asked.offset !== "" ? name(asked) : asked.topic, "topic/partition/offset, or a topic");
  const key = input("Key", asked.key, "key"), header = input("Header", asked.header, "header=value");
  const form = h("form", { class: "tools", onsubmit: (event) => {
    event.preventDefault();
    const [topic, partition, offset] = where.value.trim().split("/");
    go("trace", { cluster: asked.cluster, topic, partition, offset, key: offset === undefined ? key.value : "", header: offset === undefined ? header.value : "" });
  } }, where, key, header, h("button", { type: "submit", class: "button" }, "Trace"));
  const note = h("p", { class: "hint", role: "status" }), box = h("div", {});
  root.append(form, note, box);
  keys({ "/": () => where.focus() });

  const more = (detail) => Object.entries(detail).filter(([part, value]) => !HIDDEN.has(part) && value !== null && value !== "")
    .map(([part, value]) => (part === "took" ? `took ${format.duration(value)}` : value === true ? part : value === false ? `not ${part}` : `${part.replaceAll("_", " ")} ${value}`)).join(", ");
  const bytes = (value) => (value === null ? "null" : value.text !== undefined ? value.text : `base64 ${value.base64}`);
  const section = (head, element) => h("section", {}, h("h2", {}, head), element);
  const filled = (columns, options, rows) => { const made = table(columns, options); made.update(rows); return made.element; };

  const show = (story) => {
    title(`Message ${name(story)}`);
    const record = story.record, batch = record && record.batch, facts = [];
    const fact = (label, value) => facts.push(h("dt", {}, label), h("dd", { class: "path" }, value));
    if (record) {
      if (record.key !== undefined) fact("Key", bytes(record.key));
      fact("Value", record.value_size === null ? "null" : format.plural(record.value_size, "byte"));
      if (record.traceparent) fact("Trace", record.traceparent);
      for (const each of record.headers || []) fact(`Header ${each.name}`, bytes(each));
      if (batch) fact("Batch", `offsets ${batch.base_offset} to ${batch.last_offset}, ${format.plural(batch.size, "byte")}, ${batch.codec === "none" ? "not compressed" : batch.codec}`);
      if (batch && batch.producer_id >= 0) fact("Producer", `id ${batch.producer_id}, epoch ${batch.producer_epoch}`);
    }
    dom.replace(box, facts.length ? h("dl", { class: "panel message" }, facts) : null,
      section("From its write to now", waterfall(context, story)),
      section("What happened", filled([
        { title: "When (UTC)", text: (row) => stamp(row.time) },
        { title: "What", text: (row) => row.event.replaceAll("_", " "), tone: (row) => (row.event === "dropped" ? "bad" : ["returned", "ack_refused"].includes(row.event) ? "watch" : "") },
        { title: "Group", class: "path", text: (row) => row.group || "–" },
        { title: "Who", class: "path wrap", text: (row) => [row.detail.client ? `client ${row.detail.client}` : "", row.daemon ? `daemon ${row.daemon}` : ""].filter(Boolean).join(", ") || "–" },
        { title: "More", class: "wrap", text: (row) => more(row.detail) || "–" },
        { key: "source", title: "Known from", class: "dim" },
      ], { label: "What happened", empty: "Nobody has noted anything." }, story.events)),
      section("In groups now", filled([
        { key: "group", title: "Group", class: "path" },
        { title: "State", text: (row) => row.state, tone: (row) => TONES[row.state] || "" },
        { title: "Client", class: "path wrap", text: (row) => row.detail.client || "–" },
        { title: "Attempts", class: "num", text: (row) => row.detail.attempts || "–" },
        { title: "Committed offset", class: "num", text: (row) => (row.committed === null ? "–" : format.count(row.committed)) },
        { title: "Owner", text: (row) => (row.owner ? "this daemon" : "not here"), class: "dim" },
      ], { label: "Groups", href: (row) => (row.owner ? href("group", { cluster: story.cluster, group: row.group }) : undefined), empty: "No group has anything to do with it." }, story.groups)),
      section("Not known", filled([
        { key: "what", title: "Question", class: "wrap" },
        { key: "why", title: "Why", class: "wrap" },
      ], { label: "Not known", empty: "Everything is known." }, story.unknown)));
  };

  const choose = (found) => {
    const part = found.searched.filter((each) => !each.complete || each.failed);
    dom.setText(note, `${format.plural(found.total, "message")} since ${stamp(found.since)}${part.length ? `; not all of ${format.plural(part.length, "partition")} was searched` : ""}`);
    dom.replace(box, filled([
      { title: "Message", class: "path", text: (row) => name({ ...row, topic: found.topic }) },
      { title: "Timestamp (UTC)", text: (row) => stamp(row.timestamp) },
    ], { label: "Messages", href: (row) => href("trace", { cluster: found.cluster, topic: found.topic, partition: row.partition, offset: row.offset }), empty: "No such message." }, found.matches));
  };

  const load = async () => {
    dom.setText(note, "Reading …");
    const wanted = Object.entries(asked).filter(([, value]) => value !== "");
    try {
      const answer = await fetch(new URL(`../trace?${new URLSearchParams(wanted)}`, document.baseURI), { headers: { Accept: "application/json" } });
      const data = await answer.json();
      if (!answer.ok) throw new Error(data.error);
      dom.setText(note, "");
      (data.matches ? choose : show)(data);
    } catch (error) {
      dom.setText(note, `Not traced: ${error.message}`);
    }
  };
  if (asked.topic) load();
  else dom.setText(note, "Name a message, such as orders/3/812; or a topic, and a key or header to look for.");
}

// One group: what is wrong with it, what is out (each un-acked message), its topics and partitions.
import { allowed, buttons } from "./actions.js";
import { cards } from "./cards.js";

export default async function group(context) {
  const { root, query, h, format, table, pager, watch, href, dom, leave } = context;
  const asked = { cluster: query.cluster || "", group: query.group || "" };
  let left = false;
  leave(() => { left = true; });
  const may = await allowed(asked);
  if (left) return;
  const outcome = h("p", { class: "hint", role: "status" }), tools = h("div", { class: "tools", hidden: !may });
  const { pause, resume, drain, giveBack, reset } = buttons(context, asked, outcome);
  const facts = h("p", { class: "hint" }), box = h("div", { class: "cards" });
  const out_count = h("span", { class: "count" });
  const out = table([
    { title: "Message", class: "path", text: (row) => `${row.topic}/${row.partition}/${row.offset}`, tone: (row) => (row.attempts > 2 ? "bad" : "") },
    { title: "Client", class: "path wrap", text: (row) => row.client || "the program itself" },
    { title: "State", text: (row) => (row.out ? "held by the client" : "waits to be offered again") },
    { title: "Age", class: "num", text: (row) => format.duration(row.age), hint: "Since it was offered first" },
    { title: "Held for", class: "num", text: (row) => format.duration(row.held) },
    { title: "Attempts", class: "num", text: (row) => format.count(row.attempts), tone: (row) => (row.attempts > 2 ? "bad" : row.attempts > 1 ? "watch" : "") },
    { title: "Next offer in", class: "num", text: (row) => (row.out ? format.duration(Math.max(0, row.due)) : "next request"), hint: "consumer.ack_timeout after the last offer" },
    ...(may ? [{ title: "", same: (row) => `${row.topic}/${row.partition}/${row.offset} ${row.out} ${row.client}`, node: (row) => (row.out ? giveBack(row) : null) }] : []),
  ], { label: "Un-acked messages", href: (row) => href("trace", { cluster: asked.cluster, topic: row.topic, partition: row.partition, offset: row.offset }), empty: "Every message that was offered is acknowledged." });
  const topics = table([
    { key: "topic", title: "Topic", class: "path" },
    { key: "state", title: "State", tone: (row) => (row.state === "missing" ? "bad" : row.state === "joining" ? "watch" : "") },
    { title: "Waiting", class: "num", text: (row) => format.count(row.polls), hint: "Requests that wait for a message" },
    { title: "Longest", class: "num", text: (row) => format.duration(row.oldest_poll) },
    { title: "Last request", class: "num", text: (row) => (row.polls ? "now" : `${format.duration(row.idle)} ago`) },
    { title: "Without owner", class: "num", text: (row) => (row.unowned && row.unowned.length ? row.unowned.join(", ") : "–"), tone: (row) => (row.unowned && row.unowned.length ? "watch" : "") },
    { title: "Without leader", class: "num", text: (row) => (row.leaderless && row.leaderless.length ? row.leaderless.join(", ") : "–"), tone: (row) => (row.leaderless && row.leaderless.length ? "bad" : "") },
    ...(may ? [{ title: "", same: (row) => row.topic, node: (row) => reset(row.topic) }] : []),
  ], { label: "Topics", empty: "Nobody asks for a topic." });
  const partitions = table([
    { title: "Partition", class: "path", text: (row) => `${row.topic}/${row.partition}`, tone: (row) => (row.full ? "bad" : "") },
    { title: "Position", class: "num", text: (row) => format.count(row.position), hint: "The lowest offset that is not done" },
    { title: "Lag", class: "num", text: (row) => format.short(row.lag) },
    { title: "Done in", class: "num", text: (row) => format.duration(row.drain) },
    { title: "Un-acked", class: "num", text: (row) => `${format.count(row.unacked)}${row.full ? ", full" : ""}`, tone: (row) => (row.full ? "bad" : "") },
    { title: "Oldest", class: "num", text: (row) => format.duration(row.oldest) },
    { title: "Fetched", class: "num", text: (row) => format.count(row.buffered), hint: "Messages that wait here for a first offer" },
    { title: "Done above", class: "num", text: (row) => format.count(row.done_above), hint: "Messages above the position that are acknowledged already" },
    { title: "Owned for", class: "num", text: (row) => format.duration(row.age) },
    { title: "Restarts", class: "num", text: (row) => row.restarts || "–" },
    { title: "State", text: (row) => (row.paused ? "paused" : row.draining ? "drains" : "–"), tone: (row) => (row.paused ? "watch" : "") },
    ...(may ? [{ title: "", same: (row) => `${row.topic}/${row.partition} ${row.paused} ${whole}`, node: (row) => {
      if (whole) return null;
      const what = `${row.topic}/${row.partition}`, query = { topic: row.topic, partition: String(row.partition) };
      return row.paused ? resume(what, query) : pause(what, query);
    } }] : []),
  ], { label: "Partitions", empty: "This daemon owns no partition of the group." });
  let page = { page: "1" };
  const pages = pager((number) => { page = { page: String(number) }; watched.update({ ...asked, ...page }); });
  root.append(h("p", {}, h("a", { href: href("groups") }, "All groups"), " / ", h("b", { class: "path" }, asked.group)), facts, tools, outcome, box,
    h("section", {}, h("h2", {}, "What is out", out_count), out.element), h("section", {}, h("h2", {}, "Topics"), topics.element),
    h("section", {}, h("h2", {}, "Partitions"), h("div", { class: "tools" }, pages.element), partitions.element));
  const show = cards(context);
  let whole = null;
  const watched = watch("kafka.group", { ...asked, ...page }, (data) => {
    const lag = data.lag === null ? "lag not known yet" : `lag ${format.count(data.lag)}`;
    dom.setText(facts, `${format.plural(data.partitions_owned, "partition")} here, ${lag}, ${format.plural(data.acks, "ack")} in the last minute${data.failure ? `; cannot consume: ${data.failure}` : ""}`);
    show(box, data.findings, "Nothing is wrong with this group.");
    const paused = data.paused.some((each) => !each.topic);
    if (paused !== whole) {
      whole = paused;
      const what = `group ${asked.group}`;
      dom.replace(tools, paused ? resume(what) : pause(what), drain(what));
    }
    topics.update(data.topics);
    partitions.update(data.partitions.rows);
    pages.update(data.partitions.page, data.partitions.pages, format.plural(data.partitions.total, "partition"));
  });
  watch("kafka.out", asked, (data) => {
    out.update(data.rows);
    dom.setText(out_count, data.total ? `${format.count(data.total)}${data.rows.length < data.total ? `, ${format.count(data.rows.length)} shown` : ""}` : "");
  });
}

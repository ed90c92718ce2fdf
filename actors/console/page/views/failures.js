// Failures: crash reports by fingerprint, lost messages by reason, and what happened lately.
export default function failures({ root, h, format, table, watch, href, dom }) {
  const link = (path) => (path ? h("a", { href: href("actor", { path }), class: "path" }, path) : "–");
  const open = new Set();
  const crashes = h("div", { class: "cards" });
  const crash_count = h("span", { class: "count" }), lost_count = h("span", { class: "count" });
  const lost = table([
    { key: "type", title: "Kind", text: (row) => ({ DeadLetter: "dead letter", Dropped: "dropped", Unhandled: "unhandled" })[row.type] || row.type },
    { title: "Recipient", class: "path wrap", same: (row) => row.path, node: (row) => link(row.path) },
    { key: "message", title: "Message", class: "message" },
    { key: "reason", title: "Reason", class: "wrap" },
    { title: "Last sender", class: "path wrap", text: (row) => row.sender || "outside of actors" },
    { title: "Count", class: "num", text: (row) => format.count(row.count) },
    { title: "First", class: "num", text: (row) => format.clock(row.first) },
    { title: "Last", class: "num", text: (row) => format.clock(row.last) },
  ], { label: "Lost messages", empty: "No message was lost since this console was opened." });
  const events = table([
    { title: "Time", class: "num first", text: (row) => format.clock(row.at) },
    { key: "type", title: "Event", text: (row) => ({ ActorFailed: "failed", ActorRestarting: "restarting", AskCycleFound: "circle refused", LoopBlocked: "loop blocked", SlowHandler: "slow handler" })[row.type] || row.type,
      tone: (row) => (row.type === "ActorFailed" || row.type === "LoopBlocked" ? "bad" : "watch") },
    { title: "Actor", class: "path wrap", same: (row) => String(row.path), node: (row) => link(row.path) },
    { title: "What", class: "wrap", same: (row) => row.text + (row.stack || ""), node: (row) => [row.text, row.stack && h("details", {}, h("summary", {}, "Stack"), h("pre", {}, row.stack.split("\n").map((line, at) => [at ? h("br") : "", line])))] },
  ], { label: "Events", empty: "Nothing failed, restarted or blocked the loop since the console's start." });
  root.append(h("section", {}, h("h2", {}, "Failures by cause", crash_count), crashes), h("section", {}, h("h2", {}, "Lost messages", lost_count), lost.element),
    h("section", {}, h("h2", {}, "Latest events"), events.element));

  const lines = (text) => text.split("\n").map((line) => h("li", {}, line));
  const card = (each) => {
    const details = h("details", { open: open.has(each.fingerprint) }, h("summary", {}, "Evidence"),
      h("dl", { class: "facts" },
        h("dt", {}, "Actors"), h("dd", {}, each.paths.map((path, at) => [at ? ", " : "", link(path)])),
        each.causes.length > 0 && [h("dt", {}, "Caused by"), h("dd", {}, each.causes.join(" ← "))],
        h("dt", {}, "Then"), h("dd", {}, `${format.plural(each.mailbox, "message")} in the mailbox; the supervisor's decision: ${each.directive}`),
        h("dt", {}, "Messages before"), h("dd", {}, each.recent.length ? each.recent.map(([type, sender, age], at) => [at ? ", " : "", h("code", {}, type), sender ? ` from ${sender}` : "", ` (${format.duration(age)} earlier)`]) : "none")),
      h("ol", { class: "stack" }, lines(each.stack)));
    details.addEventListener("toggle", () => { if (details.open) open.add(each.fingerprint); else open.delete(each.fingerprint); });
    return h("article", { class: "panel card" },
      h("div", { class: "card-head" }, h("span", { class: "dot", dataset: { tone: "bad" } }), h("b", { class: "error" }, each.error), each.shown !== each.error && h("span", { class: "wrap" }, each.shown), h("b", {}, `${format.count(each.count)} ×`)),
      h("p", {}, `in ${each.actor_class}, ${each.where}`, each.message && [", handling ", h("code", {}, each.message)], `; last ${format.clock(each.last)}, first ${format.clock(each.first)}`), details);
  };
  let shown = "";
  watch("failures", {}, (data) => {
    const key = JSON.stringify(data.crashes.map((each) => [each.fingerprint, each.count]));
    if (key !== shown) {
      shown = key;
      dom.replace(crashes, data.crashes.length ? data.crashes.map(card) : h("p", { class: "panel empty" }, "No actor has failed since the console's start."));
    }
    dom.setText(crash_count, data.crashes.length ? `${format.count(data.crashes.length)}${data.forgotten ? `, ${format.count(data.forgotten)} older ones forgotten` : ""}` : "");
    dom.setText(lost_count, data.dead_letters ? `${format.plural(data.dead_letters, "dead letter")} since the system's start` : "");
    lost.update(data.lost);
    events.update(data.events);
  });
}

// Waits: the actors that hold up others first, then circles, then the oldest asks.
export default function waits({ root, h, format, table, watch, href, dom }) {
  const link = (path) => h("a", { href: href("actor", { path }), class: "path" }, path);
  const said = h("p", { class: "hint" });
  const cycles = h("div");
  const blockers = h("div", { class: "cards" });
  const asks = table([
    { key: "asker", title: "Asker", class: "path wrap", text: (row) => row.asker || "outside of actors" },
    { title: "Waits for", class: "path wrap", same: (row) => row.target, node: (row) => link(row.target) },
    { key: "message", title: "Message", class: "message" },
    { key: "state", title: "State", text: (row) => (row.cycle ? "in a circle" : row.state === "handling" ? "being handled" : "in the mailbox"), tone: (row) => (row.cycle ? "bad" : "") },
    { title: "Age", class: "num", text: (row) => format.duration(row.age), tone: (row) => (row.age > 10 ? "bad" : row.age > 1 ? "watch" : "") },
  ], { label: "The oldest asks", empty: "No ask waits for its answer." });
  root.append(cycles, h("section", {}, h("h2", {}, "Who holds others up"), said, blockers), h("section", {}, h("h2", {}, "The oldest asks"), asks.element));

  const blocker = (each) => h("article", { class: "panel card" },
    h("div", { class: "card-head" }, h("span", { class: "dot", dataset: { tone: each.oldest > 10 ? "bad" : each.oldest > 1 ? "watch" : "" } }), link(each.path),
      h("b", {}, `${format.plural(each.waiters, "waiter")}`)),
    h("p", {}, each.current
      ? ["handles ", h("code", {}, each.current), ` since ${format.duration(each.busy)}`]
      : each.state === "running" ? "handles nothing at the moment" : `is ${each.state}`,
      each.depth ? `; ${format.plural(each.depth, "message")} in its mailbox` : "", `; the oldest ask is ${format.duration(each.oldest)} old`,
      each.callers ? `; ${format.count(each.callers)} asked from outside of actors` : ""),
    each.chain.length > 1 && h("p", { class: "chain" }, each.chain.map((path, at) => [at ? h("span", { class: "arrow" }, " → ") : "", link(path)])));
  const circle = (members) => h("article", { class: "panel card circle" },
    h("div", { class: "card-head" }, h("span", { class: "dot", dataset: { tone: "bad" } }), h("b", {}, `Deadlock: ${format.plural(members.length, "actor")} wait in a circle`)),
    h("ol", {}, members.map((each) => h("li", {}, link(each.path), each.target ? [" waits for ", link(each.target)] : "",
      each.message ? [", which it asked ", h("code", {}, each.message)] : "", each.age ? ` ${format.duration(each.age)} ago` : ""))));
  watch("waits", {}, (data) => {
    dom.replace(cycles, data.cycles.length ? h("section", { class: "circles" }, data.cycles.map(circle)) : []);
    dom.setText(said, data.blockers.length
      ? `${format.plural(data.total, "ask")} without an answer. An actor is listed if others wait for it and it waits for no actor itself.${data.more ? ` ${data.more} more are not listed.` : ""}`
      : "No actor waits for another.");
    dom.replace(blockers, data.blockers.map(blocker));
    asks.update(data.asks);
  });
}

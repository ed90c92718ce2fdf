// A finding as a card: the cause first, what to do, then the evidence.
const NAMES = { "never-acked": "Never acknowledged", "behind-one-message": "Behind one message", "quota-reached": "Bound reached" };

export function title(rule) {
  return NAMES[rule] || rule[0].toUpperCase() + rule.slice(1).replaceAll("-", " ");
}

/** What evidence is in seconds; `oldest` also names a message. */
const SECONDS = new Set(["oldest_age", "first_offered", "due", "longest", "oldest"]);

const shown = (name, value, format) => (typeof value === "number" && SECONDS.has(name) ? format.duration(value) : typeof value === "number" && !Number.isInteger(value) ? value.toFixed(2) : Array.isArray(value) ? value.join(", ") : String(value));

export function cards({ h, format, href, dom }) {
  const place = (where) => {
    const parts = Object.entries(where).map(([name, value]) => {
      if (name === "group") return [`${name} `, h("a", { href: href("group", { cluster: where.cluster, group: value }) }, value)];
      if (name === "actor") return [`${name} `, h("a", { href: href("actor", { path: value }), class: "path" }, value)];
      return `${name} ${value}`;
    });
    return parts.map((part, at) => [at ? ", " : "", part]);
  };
  const card = (each) => h("article", { class: "panel card finding" },
    h("div", { class: "card-head" }, h("span", { class: "dot", dataset: { tone: each.severity === "error" ? "bad" : "watch" } }), h("b", {}, title(each.rule)),
      h("span", { class: "dim" }, each.age >= 0.5 ? `for ${format.duration(each.age)}` : "now")),
    h("p", { class: "cause" }, `${each.cause}.`),
    h("p", { class: "todo" }, `${each.todo[0].toUpperCase()}${each.todo.slice(1)}.`),
    h("p", { class: "where dim" }, place(each.where)),
    h("dl", { class: "facts" }, Object.entries(each.evidence).map(([name, value]) => h("div", {}, h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, shown(name, value, format))))));
  let before = "";
  return (box, found, empty) => {
    const key = JSON.stringify(found.map((each) => [each.rule, each.where, Math.round(each.age / 5), each.evidence]));
    if (key === before) return;
    before = key;
    dom.replace(box, found.length ? found.map(card) : h("p", { class: "panel empty" }, empty));
  };
}

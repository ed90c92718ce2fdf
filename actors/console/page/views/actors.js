// Hot actors: the operator's home. One page of a table that the server sorts and filters.
export default function actors({ root, query, h, format, table, pager, watch, set, href, keys }) {
  const state = { sort: "age", order: "desc", page: "1", size: "50", ...query };
  const sent = () => ({ ...state, size: state.size });
  const change = (changed) => {
    Object.assign(state, { page: "1" }, changed);
    set(state, { sort: "age", order: "desc", page: "1", size: "50", scope: "", only: "", under: "" });
    watched.update(sent());
  };
  const scope = h("input", {
    type: "search", value: state.scope || "", placeholder: "Filter by path or class, such as /service/*", "aria-label": "Filter", spellcheck: "false",
    autocomplete: "off", maxlength: "500",
  });
  let timer;
  scope.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => change({ scope: scope.value }), 200);
  });
  const only = h("select", { "aria-label": "Which actors", onchange: () => change({ only: only.value }) },
    [["", "All actors"], ["busy", "With work"], ["troubled", "In trouble"]].map(([value, title]) => h("option", { value, selected: value === (state.only || "") }, title)));
  const under = h("span", { class: "chip", hidden: !state.under }, `below ${state.under || ""} `,
    h("button", { type: "button", "aria-label": "Show all of the tree", onclick: () => { under.hidden = true; change({ under: undefined }); } }, "×"));
  const columns = [
    { key: "path", title: "Actor", sort: "path", class: "grow path", tone: (row) => ["", "watch", "bad"][row.level] },
    { key: "class", title: "Class", sort: "class", class: "dim wide" },
    { title: "State", sort: "state", text: (row) => row.reason || row.state, class: "reason", tone: (row) => ["", "watch", "bad"][row.level] },
    { title: "Waiting", sort: "depth", class: "num", text: (row) => (row.depth ? format.short(row.depth) : "–"), hint: "Messages in the mailbox" },
    { title: "Oldest", sort: "age", class: "num", text: (row) => format.duration(row.age), hint: "Age of the oldest message that waits" },
    { title: "Handles", key: "current", class: "message", text: (row) => row.current || "–", hint: "Type of the message that is being handled" },
    { title: "Since", sort: "busy", class: "num", text: (row) => format.duration(row.busy), hint: "How long that message has been handled" },
    { title: "In/s", sort: "in", class: "num", text: (row) => format.rate(row.in_rate), hint: "Messages that arrived, per second" },
    { title: "Out/s", sort: "out", class: "num", text: (row) => format.rate(row.out_rate), hint: "Messages that were handled, per second" },
    { title: "Errors/s", sort: "errors", class: "num", text: (row) => format.rate(row.error_rate), tone: (row) => (row.error_rate ? "bad" : "") },
    { title: "Wait p99", sort: "wait", class: "num", text: (row) => format.latency(row.wait_p99), hint: "99 of 100 messages waited no longer" },
    { title: "Run p99", sort: "run", class: "num", text: (row) => format.latency(row.run_p99), hint: "99 of 100 messages were handled within this time" },
    { title: "Handled", sort: "processed", class: "num", text: (row) => format.short(row.processed) },
    { title: "Restarts", sort: "restarts", class: "num", text: (row) => (row.restarts ? format.short(row.restarts) : "–") },
  ];
  const rows = table(columns, {
    label: "Actors", sort: state.sort, order: state.order, onsort: (sort, order) => change({ sort, order }),
    href: (row) => href("actor", { path: row.path }), empty: "No actor matches.",
  });
  const pages = pager((page) => { change({ page: String(page) }); });
  root.append(h("div", { class: "tools" }, scope, only, under, pages.element), rows.element);
  const watched = watch("actors", sent(), (data) => {
    state.page = String(data.page);
    rows.update(data.rows);
    const rest = data.hidden ? ` (${format.count(data.hidden)} more are not looked at)` : "";
    pages.update(data.page, data.pages, `${format.plural(data.total, "actor")}${rest}`);
  });
  keys({ "/": () => scope.focus(), "[": () => pages.step(-1), "]": () => pages.step(1) });
}

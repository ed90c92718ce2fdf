// Groups: a page of a table that the server sorts and filters; those in trouble first.
import { title } from "./cards.js";

export default function groups({ root, query, h, format, table, pager, watch, set, href, keys }) {
  const defaults = { sort: "trouble", order: "desc", page: "1", size: "50", scope: "" };
  const state = { ...defaults, ...query };
  const change = (changed) => {
    Object.assign(state, { page: "1" }, changed);
    set(state, defaults);
    watched.update({ ...state });
  };
  const scope = h("input", { type: "search", value: state.scope, placeholder: "Filter by name", "aria-label": "Filter", spellcheck: "false", autocomplete: "off", maxlength: "300" });
  let timer;
  scope.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => change({ scope: scope.value }), 200);
  });
  const rows = table([
    { key: "group", title: "Group", sort: "group", class: "grow path", tone: (row) => (row.errors ? "bad" : row.trouble ? "watch" : "") },
    { key: "cluster", title: "Cluster", class: "dim wide" },
    { title: "Findings", sort: "trouble", class: "wrap reason", text: (row) => [...new Set(row.rules)].map(title).join(", ") || "–", tone: (row) => (row.errors ? "bad" : row.trouble ? "watch" : "") },
    { title: "Lag", sort: "lag", class: "num", text: (row) => format.short(row.lag), hint: "Messages behind the end of the log, by the committed offsets" },
    { title: "Grows by", sort: "rate", class: "num", text: (row) => (row.rate === null ? "–" : Math.abs(row.rate) < 0.05 ? "0" : `${row.rate > 0 ? "+" : ""}${row.rate.toFixed(1)}/s`), tone: (row) => (row.rate > 0.05 ? "watch" : "") },
    { title: "Done in", sort: "drain", class: "num", text: (row) => format.duration(row.drain), hint: "Time until nothing waits any more, at this rate" },
    { title: "Un-acked", sort: "unacked", class: "num", text: (row) => format.short(row.unacked), hint: "Messages that clients have and have not acknowledged" },
    { title: "Oldest", sort: "oldest", class: "num", text: (row) => format.duration(row.oldest), hint: "Since the oldest of them was offered first" },
    { title: "Waiting", sort: "polls", class: "num", text: (row) => format.short(row.polls), hint: "Requests that wait for a message" },
    { title: "Acks/min", class: "num", text: (row) => format.short(row.acks) },
    { title: "Partitions", sort: "partitions", class: "num", text: (row) => format.count(row.partitions_owned), hint: "Partitions that this daemon owns" },
  ], { label: "Groups", sort: state.sort, order: state.order, onsort: (sort, order) => change({ sort, order }), href: (row) => href("group", { cluster: row.cluster, group: row.group }), empty: "No group matches. A group appears with the first consume request." });
  const pages = pager((page) => { change({ page: String(page) }); });
  root.append(h("div", { class: "tools" }, scope, pages.element), rows.element);
  const watched = watch("kafka.groups", { ...state }, (data) => {
    state.page = String(data.page);
    rows.update(data.rows);
    pages.update(data.page, data.pages, format.plural(data.total, "group"));
  });
  keys({ "/": () => scope.focus(), "[": () => pages.step(-1), "]": () => pages.step(1) });
}

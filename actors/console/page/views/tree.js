// The supervision tree: nodes open by a click or by the arrow keys; the server sends the open ones only.
export default function tree({ root, query, h, format, watch, set, href, dom, go }) {
  let open = [];
  try {
    const asked = JSON.parse(query.open || "[]");
    if (Array.isArray(asked)) open = asked.map(String);
  } catch { /* an address that someone has changed: closed */ }
  const box = h("div", { class: "panel tree", role: "tree", "aria-label": "Actors" });
  root.append(h("div", { class: "tree-head", "aria-hidden": "true" }, h("span", {}, "Actor"), h("span", {}, "Below"), h("span", {}, "Waiting"), h("span", {}, "Oldest"), h("span", {}, "Out/s"), h("span", {}, "Restarts")), box);
  let focused = null;
  const toggle = (path) => {
    open = open.includes(path) ? open.filter((each) => each !== path && !each.startsWith(`${path}/`)) : [...open, path].slice(-200);
    set({ open: open.length ? JSON.stringify(open) : undefined });
    watched.update({ open: JSON.stringify(open) });
  };
  const row = (node, depth) => {
    const is_open = depth === 0 || open.includes(node.path);
    const element = h("div", {
      class: "tree-row", role: "treeitem", tabindex: depth === 0 ? "0" : "-1", "aria-level": depth + 1, "aria-expanded": node.children ? String(is_open) : undefined, dataset: { path: node.path },
      onclick: (event) => { if (!event.target.closest("a") && node.children && depth) toggle(node.path); },
    },
      h("span", { class: "tree-name", style: { "padding-left": `${depth * 20}px` } },
        h("span", { class: "twist", "aria-hidden": "true" }, node.children ? (is_open ? "▾" : "▸") : ""),
        h("span", { class: "dot", dataset: { tone: ["", "watch", "bad"][node.level] } }),
        depth ? h("a", { href: href("actor", { path: node.path }), class: "path", tabindex: "-1" }, node.name) : h("b", {}, node.name),
        h("span", { class: "faint" }, node.class),
        node.reason ? h("span", { class: "badge", dataset: { tone: node.own === 2 ? "bad" : "watch" } }, node.reason)
          : node.state && node.state !== "running" ? h("span", { class: "badge" }, node.state)
            : node.troubled && !is_open ? h("span", { class: "badge", dataset: { tone: node.level === 2 ? "bad" : "watch" } }, `${format.count(node.troubled)} in trouble below`) : ""),
      h("span", { class: "num" }, node.children || !depth ? format.short(node.actors - (depth ? 1 : 0)) : "–"),
      h("span", { class: "num" }, node.depth ? format.short(node.depth) : "–"),
      h("span", { class: "num" }, format.duration(node.age)),
      h("span", { class: "num" }, format.rate(node.out_rate)),
      h("span", { class: "num" }, node.restarts ? format.short(node.restarts) : "–"));
    const rows = [element];
    for (const child of node.nodes || []) rows.push(...row(child, depth + 1));
    if (node.more) {
      rows.push(h("div", { class: "tree-more", style: { "padding-left": `${(depth + 1) * 20 + 40}px` } },
        h("a", { href: href("actors", { under: node.path === "/" ? undefined : node.path, sort: "path", order: "asc" }) }, `${format.count(node.more)} more like these`)));
    }
    return rows;
  };
  box.addEventListener("focusin", (event) => { focused = event.target.closest(".tree-row")?.dataset.path ?? null; });
  box.addEventListener("keydown", (event) => {
    const at = event.target.closest(".tree-row");
    if (!at) return;
    const path = at.dataset.path, expanded = at.getAttribute("aria-expanded");
    const rows = [...box.querySelectorAll(".tree-row")], index = rows.indexOf(at);
    if (event.key === "ArrowRight" && expanded === "false") toggle(path);
    else if (event.key === "ArrowLeft" && expanded === "true" && path !== "/") toggle(path);
    else if (event.key === "ArrowLeft") rows.find((each) => path.startsWith(`${each.dataset.path}/`))?.focus();
    else if (event.key === "ArrowDown") rows[index + 1]?.focus();
    else if (event.key === "ArrowUp") rows[index - 1]?.focus();
    else if (event.key === "Enter" && path !== "/") go("actor", { path });
    else return;
    event.preventDefault();
  });
  const watched = watch("tree", { open: JSON.stringify(open) }, (data) => {
    const had = box.contains(document.activeElement) ? focused : null;
    dom.replace(box, row(data, 0));
    if (had !== null) [...box.querySelectorAll(".tree-row")].find((each) => each.dataset.path === had)?.focus({ preventScroll: true });
  });
}

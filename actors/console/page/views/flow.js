// The flow map: classes as boxes in layers, messages as arrows; the table below has the figures.
const BOX = 172, TALL = 46, GAP_X = 110, GAP_Y = 22, MOST = 40;

/** Put classes into layers: a sender stands left of its receivers where the arrows have no circle. */
function layers(edges) {
  const names = [...new Set(edges.flatMap((edge) => [edge.sender, edge.receiver]))];
  const layer = new Map(names.map((name) => [name, 0]));
  for (let round = 0; round < names.length; round += 1) {
    let moved = false;
    for (const edge of edges) {
      if (edge.sender === edge.receiver) continue;
      const wanted = layer.get(edge.sender) + 1;
      if (layer.get(edge.receiver) < wanted && wanted < Math.min(8, names.length)) {
        if (edges.some((back) => back.sender === edge.receiver && back.receiver === edge.sender && back.rate > edge.rate)) continue;
        layer.set(edge.receiver, wanted);
        moved = true;
      }
    }
    if (!moved) break;
  }
  return layer;
}

export default function flow({ root, query, h, format, table, watch, href, dom, set }) {
  let only = query.class || "";
  const chip = h("span", { class: "chip", hidden: true });
  const map = h("div", { class: "panel map" });
  const said = h("p", { class: "hint" });
  const choose = (name) => { only = only === name ? "" : name; set({ class: only || undefined }); show(); };
  const edges = table([
    { key: "sender", title: "From", class: "path wrap" }, { key: "receiver", title: "To", class: "path wrap" }, { key: "message", title: "Message", class: "message" },
    { title: "Per second", class: "num", text: (row) => format.rate(row.rate) }, { title: "In all", class: "num", text: (row) => format.short(row.count) },
    { title: "Errors/s", class: "num", text: (row) => format.rate(row.errors), tone: (row) => (row.errors ? "bad" : "") },
    { title: "Lost", class: "num", text: (row) => (row.lost ? format.short(row.lost) : "–"), tone: (row) => (row.lost ? "bad" : "") },
    { title: "Wait p99", class: "num", text: (row) => format.latency(row.wait) }, { title: "Run p99", class: "num", text: (row) => format.latency(row.run) },
  ], { label: "Messages between classes", empty: "No message was handled since this view was opened." });
  root.append(h("div", { class: "tools" }, said, chip), map, h("section", {}, edges.element));
  let last = null, placed = null;

  function draw(found) {
    const merged = new Map();
    for (const edge of found) {
      const key = JSON.stringify([edge.sender, edge.receiver]);
      const sum = merged.get(key) || { sender: edge.sender, receiver: edge.receiver, rate: 0, errors: 0, drops: 0, count: 0, wait: 0 };
      for (const name of ["rate", "errors", "drops", "count"]) sum[name] += edge[name];
      sum.wait = Math.max(sum.wait, edge.wait);
      merged.set(key, sum);
    }
    const arrows = [...merged.values()].sort((a, b) => b.count - a.count).slice(0, MOST);
    const key = JSON.stringify(arrows.map((edge) => [edge.sender, edge.receiver]).sort());
    if (!placed || placed.key !== key) {
      const layer = layers(arrows), columns = [];
      for (const [name, at] of layer) (columns[at] ||= []).push(name);
      const spots = new Map(), filled = columns.filter(Boolean), tallest = Math.max(1, ...filled.map((names) => names.length));
      filled.forEach((names, x) => names.forEach((name, y) => spots.set(name, { x: 12 + x * (BOX + GAP_X), y: 28 + ((tallest - names.length) * (TALL + GAP_Y)) / 2 + y * (TALL + GAP_Y) })));
      placed = { key, spots, width: 24 + filled.length * (BOX + GAP_X) - GAP_X, height: 40 + tallest * (TALL + GAP_Y) };
    }
    const most = Math.max(1, ...arrows.map((edge) => edge.rate));
    const svg = h("svg", { viewBox: `0 0 ${placed.width} ${placed.height}`, width: placed.width, height: placed.height, role: "img", "aria-label": "Messages between classes of actors" });
    const arrow = (edge) => {
      const from = placed.spots.get(edge.sender), to = placed.spots.get(edge.receiver);
      const forward = to.x > from.x, self = edge.sender === edge.receiver;
      const x1 = forward ? from.x + BOX : from.x + BOX / 2, y1 = forward ? from.y + TALL / 2 : from.y;
      const x2 = forward ? to.x : to.x + BOX / 2, y2 = forward ? to.y + TALL / 2 : to.y;
      const path = self ? `M ${x1 - 14} ${y1} C ${x1 - 24} ${y1 - 26}, ${x1 + 24} ${y1 - 26}, ${x1 + 14} ${y1}`
        : forward ? `M ${x1} ${y1} C ${x1 + GAP_X / 2} ${y1}, ${x2 - GAP_X / 2} ${y2}, ${x2} ${y2}`
          : `M ${x1} ${y1} C ${x1} ${y1 - 34}, ${x2} ${y2 - 34}, ${x2} ${y2}`;
      const label_x = (x1 + x2) / 2, label_y = self ? y1 - 22 : forward ? (y1 + y2) / 2 - 6 : Math.min(y1, y2) - 16;
      return h("g", { class: `edge${edge.errors || edge.drops ? " bad" : ""}${edge.rate ? "" : " still"}` }, h("title", {}, `${edge.sender} → ${edge.receiver}: ${format.rate(edge.rate)}/s, wait p99 ${format.latency(edge.wait)}`),
        h("path", { d: path, "stroke-width": 1.2 + 4 * Math.sqrt(edge.rate / most) }), h("text", { x: label_x, y: label_y }, edge.rate ? `${format.rate(edge.rate)}/s` : ""));
    };
    const node = ([name, spot]) => {
      const into = arrows.filter((edge) => edge.receiver === name).reduce((sum, edge) => sum + edge.rate, 0);
      const lost = arrows.filter((edge) => edge.receiver === name).reduce((sum, edge) => sum + edge.drops, 0);
      return h("g", { class: `node${only === name ? " chosen" : ""}${/^\(/.test(name) ? " outside" : ""}`, tabindex: "0", role: "button", onclick: () => choose(name), onkeydown: (event) => { if (event.key === "Enter") choose(name); } },
        h("rect", { x: spot.x, y: spot.y, width: BOX, height: TALL, rx: 8 }), h("title", {}, name),
        h("text", { x: spot.x + 12, y: spot.y + 19, class: "name" }, name.length > 23 ? `${name.slice(0, 22)}…` : name),
        h("text", { x: spot.x + 12, y: spot.y + 36, class: "sub" }, into ? `${format.rate(into)} handled/s` : lost ? `${format.rate(lost)} lost/s` : name === "(outside)" ? "not an actor" : "idle"));
    };
    dom.replace(map, dom.fill(svg, arrows.map(arrow), [...placed.spots].map(node)));
    return merged.size;
  }

  function show() {
    if (!last) return;
    const chosen = last.edges.filter((edge) => !only || edge.sender === only || edge.receiver === only);
    chip.hidden = !only;
    if (only) dom.replace(chip, `${only} `, h("a", { href: href("actors", { scope: only }) }, "its actors"), h("button", { type: "button", "aria-label": "Show all classes", onclick: () => choose(only) }, "×"));
    const focus = map.contains(document.activeElement);
    map.hidden = !chosen.length;
    const size = chosen.length ? draw(chosen) : 0;
    if (focus && only) map.querySelector(".chosen")?.focus();
    const rest = last.hidden + Math.max(0, size - MOST);
    dom.setText(said, `Counted while this view is open: it makes every message a little slower.${rest ? ` ${format.count(rest)} arrows with less are not drawn.` : ""}${last.beyond ? ` ${format.count(last.beyond)} messages are of more kinds than are counted.` : ""}`);
    edges.update(chosen.slice(0, 100));
  }
  watch("flow", {}, (data) => { last = data; show(); });
}

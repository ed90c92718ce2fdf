// The frame around the views: menu, deep links, keyboard, pause, theme, export.
import * as dom from "./dom.js";
import * as format from "./format.js";
import { plot, heatmap } from "./plot.js";
import { fetchSource, Stream } from "./stream.js";
import { pager, table } from "./table.js";
import { summary } from "./summary.js";

const { h, replace, setText } = dom;
const OWN = [
  { name: "actors", title: "Hot actors", hint: "Which actor holds messages, how many, and since when?" },
  { name: "waits", title: "Waits", hint: "Who waits for whom, and who holds them all up?" },
  { name: "failures", title: "Failures", hint: "What failed, restarted or was lost?" },
  { name: "tree", title: "Tree", hint: "Who supervises whom, and where is the trouble?" },
  { name: "flow", title: "Flow", hint: "Which class sends what to which, and how fast?" },
  { name: "actor", title: "Actor", hint: "", hidden: true, parent: "actors" },
].map((view) => ({ ...view, module: `page/views/${view.name}.js` }));

const page = { views: new Map(), parts: [], boot: null, view: null, stops: [], keys: {}, frames: {}, ignore: null, index: 0 };
const main = document.getElementById("main");

/** The view's name and parameters in the address: #/actors?sort=wait. */
function place() {
  const [name, parameters] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { name: name || OWN[0].name, query: Object.fromEntries(new URLSearchParams(parameters || "")) };
}

function href(name, query = {}, defaults = {}) {
  const kept = Object.entries(query).filter(([key, value]) => value !== undefined && value !== null && value !== "" && value !== defaults[key]);
  return `#/${name}${kept.length ? `?${new URLSearchParams(kept)}` : ""}`;
}

function note(kind, text) {
  const box = document.getElementById("note");
  box.dataset.kind = kind;
  box.hidden = !text;
  setText(box, text || "");
}

function context(root, name, query) {
  const watch = (source, wanted, callback) => {
    const watched = stream.watch(source, wanted, (frame) => {
      page.frames[source] = frame;
      if (frame.error) return note("error", frame.error);
      note("error", "");
      callback(frame.data, frame.at);
    });
    page.stops.push(watched.stop);
    return watched;
  };
  return {
    root, query, h, format, table, pager, plot, heatmap, watch, href, dom,
    get: fetchSource,
    go: (other, parameters) => { location.hash = href(other, parameters); },
    set: (parameters, defaults) => {
      const hash = href(name, parameters, defaults);
      if (hash === location.hash) return;
      history.replaceState(null, "", hash);
    },
    title: (text) => { setText(document.getElementById("title"), text); document.title = `${dom.clean(text)} · ${dom.clean(page.boot.title)}`; },
    keys: (bound) => Object.assign(page.keys, bound),
    leave: (stop) => page.stops.push(stop),
  };
}

/** On a phone the menu is one line wider than the screen: scroll it, and nothing else, to the view's link. */
function reveal(link) {
  const menu = document.getElementById("menu");
  menu.scrollLeft = link.offsetLeft - (menu.clientWidth - link.offsetWidth) / 2;
}

async function show() {
  const { name, query } = place();
  const view = page.views.get(name);
  for (const stop of page.stops) stop();
  Object.assign(page, { stops: [], keys: {}, frames: {}, index: page.index + 1 });
  const mine = page.index;
  for (const link of document.querySelectorAll("#menu a[data-view]")) {
    if (link.dataset.view === (view && view.hidden ? view.parent : name)) {
      link.setAttribute("aria-current", "page");
      reveal(link);
    } else link.removeAttribute("aria-current");
  }
  const root = h("div", { class: `view view-${name}` });
  const heading = h("div", { class: "heading" }, h("h1", { id: "title" }, view ? view.title : "No such view"), h("p", { class: "hint", id: "hint" }, view ? view.hint : ""));
  replace(main, heading, h("p", { id: "note", hidden: true, role: "alert" }), root);
  document.title = `${view ? view.title : "Console"} · ${dom.clean(page.boot.title)}`;
  main.scrollTo(0, 0);
  if (!view) {
    root.append(h("p", { class: "empty" }, `There is no view “${name}”. `, h("a", { href: "#/actors" }, "Show the hot actors")));
    return;
  }
  const run = async (module, into, what) => {
    try {
      const made = await import(new URL(module, document.baseURI).href);
      if (mine === page.index) await made.default(context(into, name, query));
    } catch (error) {
      console.error(error);
      if (mine === page.index) note("error", `The ${what} cannot be shown: ${error.message}`);
    }
  };
  const parts = page.parts.filter((part) => part.view === name).map((part) => {
    const into = h("div", { class: "part" });
    heading.append(into);
    return run(part.module, into, "buttons");
  });
  await Promise.all([run(view.module, root, "view"), ...parts]);
  if (mine === page.index) main.dataset.view = name;
}

function download() {
  const { name, query } = place();
  const text = JSON.stringify({ title: page.boot.title, view: name, query, taken: new Date().toISOString(), frames: { summary: header.frame, ...page.frames } }, null, 2);
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = h("a", { href: url, download: `console-${name}-${new Date().toISOString().replace(/[:.]/g, "-")}.json` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function setPaused(paused) {
  stream.setPaused(paused);
  const button = document.getElementById("pause");
  button.setAttribute("aria-pressed", String(paused));
  setText(button.lastElementChild, paused ? "Resume" : "Pause");
}

function theme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("console-theme", document.documentElement.dataset.theme); } catch { /* not kept */ }
  dispatchEvent(new Event("console-theme"));
}

const SHORTCUTS = [["1 … 9", "a view"], ["/", "filter"], ["j k", "next, previous row"], ["Enter", "open it"], ["[ ]", "previous, next page"],
  ["p", "pause"], ["e", "export as JSON"], ["t", "light or dark"], ["?", "this list"], ["Esc", "close, leave a field"]];

function help() {
  const old = document.querySelector("dialog");
  if (old) return old.close();
  const dialog = h("dialog", { onclose: () => dialog.remove(), "aria-label": "Keyboard" }, h("h2", {}, "Keyboard"),
    h("dl", { class: "shortcuts" }, SHORTCUTS.map(([key, does]) => [h("dt", {}, key.split(" ").map((each) => h("kbd", {}, each))), h("dd", {}, does)])),
    h("form", { method: "dialog" }, h("button", {}, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}

function step(by) {
  const links = [...main.querySelectorAll("tbody .row-link[href], .tree-row")].filter((each) => each.offsetParent);
  const at = links.indexOf(document.activeElement);
  const next = links[Math.max(0, Math.min(links.length - 1, at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by))];
  if (next) next.focus();
}

addEventListener("keydown", (event) => {
  const field = event.target.closest && event.target.closest("input, select, textarea");
  if (event.key === "Escape" && field) return field.blur();
  if (field || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const menu = [...document.querySelectorAll("#menu a[data-view]")];
  const own = { p: () => setPaused(!stream.paused), e: download, t: theme, "?": help, j: () => step(1), k: () => step(-1), ...page.keys };
  if (/^[1-9]$/.test(event.key) && menu[event.key - 1]) menu[event.key - 1].click();
  else if (Object.hasOwn(own, event.key)) own[event.key]();
  else return;
  event.preventDefault();
});

const ICONS = { // of 16 by 16
  pause: ["M5.5 3.5v9", "M10.5 3.5v9"], export: ["M8 2.5v7.5", "M5 7.5l3 3 3-3", "M3 13.5h10"], theme: ["M8 2.5a5.5 5.5 0 1 0 0 11z"], keys: ["M2.5 4.5h11v7h-11z", "M5 7h.01M8 7h.01M11 7h.01M5.5 9.5h5"],
};

function tool(id, title, hint, onclick) {
  const icon = h("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, ICONS[id].map((d) => h("path", { d, class: id === "theme" ? "solid" : "" })), id === "theme" && h("circle", { cx: 8, cy: 8, r: 5.5 }));
  return h("button", { type: "button", id, class: "tool", title: hint, "aria-label": title, onclick }, icon, h("span", {}, title));
}

function menu(boot) {
  const item = (view) => h("li", {}, h("a", { href: `#/${view.name}`, dataset: { view: view.name } }, view.title));
  const group = (title, views, links = []) => views.some((view) => !view.hidden) || links.length
    ? [title && h("h2", {}, title), h("ul", {}, views.filter((view) => !view.hidden).map(item), links.map((link) => h("li", {}, h("a", { href: link.href, class: "away" }, link.title))))]
    : [];
  replace(document.getElementById("menu"), group("", OWN), boot.extensions.flatMap((each) => group(each.title, each.views, each.links)));
}

let stream, header;

async function start() {
  page.boot = await (await fetch("boot.json", { cache: "no-store" })).json();
  for (const view of [...OWN, ...page.boot.extensions.flatMap((each) => each.views)]) page.views.set(view.name, view);
  page.parts = page.boot.extensions.flatMap((each) => each.parts);
  for (const style of page.boot.extensions.flatMap((each) => each.styles)) document.head.append(h("link", { rel: "stylesheet", href: style }));
  menu(page.boot);
  const status = h("span", { id: "status", role: "status" });
  header = summary({ h, format, dom, href });
  replace(document.getElementById("top"),
    h("a", { class: "brand", href: "#/actors" }, h("img", { src: "page/icon.svg", alt: "", width: "22", height: "22" }), h("strong", {}, page.boot.title)),
    header.element,
    h("div", { class: "tool-group" }, status, tool("pause", "Pause", "Pause (p)", () => setPaused(!stream.paused)), tool("export", "Export", "Save what this view shows as JSON (e)", download),
      tool("theme", "Theme", "Light or dark (t)", theme), tool("keys", "Keys", "Keyboard (?)", help)));
  const words = { live: "live", paused: "paused", lost: "no connection", connecting: "connecting" };
  stream = new Stream((state) => { status.dataset.state = state; setText(status, words[state]); });
  stream.watch("summary", {}, (frame) => header.update(frame));
  addEventListener("resize", () => {
    const link = document.querySelector("#menu a[aria-current]");
    if (link) reveal(link);
  });
  addEventListener("hashchange", show);
  await show();
}

start().catch((error) => {
  console.error(error);
  replace(main, h("p", { id: "note", role: "alert", dataset: { kind: "error" } }, `The console does not answer: ${error.message}`));
});

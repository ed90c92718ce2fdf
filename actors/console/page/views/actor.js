// One actor: what it does, what waits for it, how it has been, what it shows of itself.
export default function actor({ root, query, h, format, table, plot, heatmap, watch, href, dom, title, leave }) {
  const path = query.path || "";
  title(path || "No actor");
  const link = (other, text) => h("a", { href: href("actor", { path: other }), class: "path" }, text || other);
  const crumbs = path.split("/").filter(Boolean).map((name, at, all) => [" / ", at === all.length - 1 ? h("b", {}, name) : link(`/${all.slice(0, at + 1).join("/")}`, name)]);
  const facts = h("dl", { class: "facts" });
  const state = h("div", { class: "state" });
  const rates = plot({ title: "Messages per second", format: format.rate, series: [{ label: "in", color: "--c1", fill: true }, { label: "out", color: "--c3" }, { label: "errors", color: "--c2" }] });
  const depth = plot({ title: "Messages that wait", format: format.short, whole: true, series: [{ label: "in the mailbox", color: "--c1", fill: true }] });
  const waits = plot({ title: "Age of the oldest message", format: format.duration, series: [{ label: "oldest", color: "--c4", fill: true }, { label: "in hand", color: "--c2" }] });
  const plots = h("div", { class: "grid" }, rates.element, depth.element, waits.element);
  const stack = h("pre", { class: "panel stack" }), stack_box = h("section", { hidden: true }, h("h2", {}, "Where its handler is"), stack);
  const tone = (seconds) => (seconds > 10 ? "bad" : seconds > 1 ? "watch" : "");
  const asks = table([
    { title: "Asked by", class: "path wrap", text: (row) => row.asker || "outside of actors" }, { key: "message", title: "Message", class: "message" },
    { title: "State", text: (row) => (row.state === "handling" ? "being handled" : "in the mailbox") }, { title: "Age", class: "num", text: (row) => format.duration(row.age), tone: (row) => tone(row.age) },
  ], { label: "Asks", empty: "Nobody waits for its answer." });
  const envelopes = table([
    { title: "Time", class: "num first", text: (row) => format.clock(row.at) }, { key: "message", title: "Message", class: "message" }, { title: "Kind", text: (row) => (row.ask ? "ask" : "tell") },
    { title: "From", class: "path wrap", text: (row) => row.sender || "outside of actors" }, { title: "Waited", class: "num", text: (row) => format.duration(row.wait), tone: (row) => tone(row.wait) },
    { title: "Ran", class: "num", text: (row) => format.duration(row.run), tone: (row) => tone(row.run) }, { title: "Outcome", text: (row) => row.error || "ok", tone: (row) => (row.error ? "bad" : "") },
  ], { label: "Messages", empty: "None was handled since this view was opened." });
  const recent = h("p", { class: "recent" });
  const events = table([
    { title: "Time", class: "num first", text: (row) => format.clock(row.at) }, { key: "type", title: "Event", text: (row) => ({ ActorFailed: "failed", ActorRestarting: "restarting" })[row.type] || row.type, tone: () => "watch" }, { key: "text", title: "What", class: "wrap" },
  ], { label: "Events", empty: "No failure and no restart since the console's start." });
  const children = h("div", { class: "children" }), children_box = h("section", { hidden: true }, h("h2", {}, "Children"), children);
  let heat = null, before = null;
  const gone = h("p", { class: "panel empty", hidden: true }, "No living actor has this path. It comes back here if one is started again.");
  const body = h("div", {},
    h("div", { class: "two" }, h("section", { class: "panel" }, h("h2", {}, "Now"), facts), h("section", { class: "panel" }, h("h2", {}, "State it shows"), state)),
    plots, stack_box,
    h("section", {}, h("h2", {}, "Last messages"), envelopes.element, recent), h("section", {}, h("h2", {}, "Who waits for its answer"), asks.element),
    h("section", {}, h("h2", {}, "Failures and restarts"), events.element), children_box);
  root.append(h("p", { class: "crumbs path" }, crumbs), gone, body);
  leave(() => { for (const each of [rates, depth, waits, heat]) if (each) each.destroy(); });

  const value = (each) => {
    if (Array.isArray(each)) return each.length ? h("ol", { class: "values" }, each.map((item) => h("li", {}, value(item)))) : h("span", { class: "faint" }, "empty list");
    if (each && typeof each === "object") {
      const entries = Object.entries(each);
      return entries.length ? h("dl", { class: "values" }, entries.map(([key, item]) => [h("dt", {}, key), h("dd", {}, value(item))])) : h("span", { class: "faint" }, "empty");
    }
    if (each === null) return h("span", { class: "faint" }, "none");
    return h("span", { class: typeof each }, typeof each === "number" ? each.toLocaleString("en", { maximumFractionDigits: 6 }) : String(each));
  };
  const fact = (name, shown, level) => shown !== null && shown !== undefined && shown !== "" && [h("dt", {}, name), h("dd", { dataset: level ? { tone: level } : {} }, shown)];
  let state_key = "";
  watch("actor", { path }, (data, at) => {
    const now = data.actor;
    gone.hidden = Boolean(now);
    body.hidden = !now;
    if (!now) return;
    dom.replace(facts,
      fact("Class", h("code", {}, `${now.module}.${now.class}`)),
      fact("Health", now.reason || "well", ["", "watch", "bad"][now.level]), fact("State", now.state),
      fact("Handles", now.current && [h("code", {}, now.current), ` since ${format.duration(now.busy)}`], tone(now.busy)),
      fact("Waits for", now.waits_for && link(now.waits_for), "watch"),
      fact("Mailbox", `${format.count(now.depth)} of ${format.count(now.capacity)}${now.age === null ? "" : `, the oldest ${format.duration(now.age)} old`}${now.stashed ? `, ${format.count(now.stashed)} put aside` : ""}`, now.depth >= now.capacity ? "bad" : tone(now.age)),
      fact("Senders that wait for room", now.senders ? format.count(now.senders) : "", "watch"),
      fact("Handled", `${format.count(now.processed)}, ${format.count(now.failed)} failed`), fact("Restarts", now.restarts ? format.count(now.restarts) : ""),
      fact("Refused", now.refused ? format.plural(now.refused, "message") : "", "watch"), fact("Given up", now.abandoned ? format.plural(now.abandoned, "ask") : ""),
      fact("Waited", now.processed ? `p50 ${format.latency(now.quantiles[0][0])}, p90 ${format.latency(now.quantiles[0][1])}, p99 ${format.latency(now.quantiles[0][2])}` : ""),
      fact("Ran", now.processed ? `p50 ${format.latency(now.quantiles[1][0])}, p90 ${format.latency(now.quantiles[1][1])}, p99 ${format.latency(now.quantiles[1][2])}` : ""),
      fact("Tasks", now.tasks ? format.count(now.tasks) : ""), fact("Timers", now.timers.length ? now.timers.join(", ") : ""),
      fact("Last failure", now.error, "bad"), fact("Children's supervision", now.supervision));
    const key = JSON.stringify([now.state_shown, now.state_error]);
    if (key !== state_key) {
      state_key = key;
      dom.replace(state, now.state_error ? h("p", { dataset: { tone: "bad" } }, now.state_error)
        : now.state_shown === null ? h("p", { class: "dim" }, "Nothing. An actor shows state by its method console_state().") : value(now.state_shown));
    }
    rates.push(at, [now.in_rate, now.out_rate, now.error_rate]);
    depth.push(at, [now.depth]);
    waits.push(at, [now.age || 0, now.busy || 0]);
    if (!heat) plots.append((heat = heatmap({ title: "How long messages waited", bounds: now.bounds })).element);
    if (before) heat.push(now.waits.map((each, i) => Math.max(0, each - before[i])));
    before = now.waits;
    stack_box.hidden = !now.stack;
    if (stack.shown !== now.stack) {
      stack.shown = now.stack;
      dom.replace(stack, (now.stack || "").split("\n").map((line, i) => [i ? h("br") : "", line]));
    }
    envelopes.update(now.envelopes);
    dom.replace(recent, now.recent.length && !now.envelopes.length ? ["Before: ", now.recent.map(([type, sender, age], i) => [i ? ", " : "", h("code", {}, type), sender ? ` from ${sender}` : "", ` ${format.duration(age)} ago`])] : "");
    recent.hidden = !recent.textContent;
    asks.update(now.asks);
    events.update(data.events);
    children_box.hidden = !now.child_count;
    dom.replace(children, now.children.map((child) => link(child.path, child.name)), now.child_count > now.children.length && h("a", { href: href("actors", { under: path }) }, `all ${format.count(now.child_count)}`));
  });
}

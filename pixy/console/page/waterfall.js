// The life of one message as bars in time: how long it waited, who held it, and how that ended.

const ENDS = { acked: "acknowledged", returned: "given back: its client had gone", dropped: "given up after consumer.max_retries" };
const TONES = { returned: "watch", again: "watch", dropped: "bad" };
const WAITING = new Set(["fetched", "not fetched", "not done", "not committed"]);

/** Make bars of a story: { lane, what, from, to, tone, open }. Pure; times are seconds since 1970. */
export function bars(story) {
  const found = [], groups = new Map(), written = story.events.find((each) => each.event === "written");
  const start = written ? written.time : story.events.length ? story.events[0].time : null;
  for (const each of story.events) {
    if (each.group) groups.set(each.group, [...(groups.get(each.group) || []), each]);
    else if (each.detail.took > 0) found.push({ lane: each.daemon ? `daemon ${each.daemon}` : "daemon", what: each.event.replaceAll("_", " "), from: each.time - each.detail.took, to: each.time, tone: "wait" });
  }
  for (const standing of story.groups) if (!groups.has(standing.group)) groups.set(standing.group, []);
  for (const [lane, events] of groups) {
    const standing = story.groups.find((each) => each.group === lane);
    let since = start, held = null;
    const wait = (to, open) => { if (since !== null && to > since) found.push({ lane, what: "waits for a request", from: since, to, tone: "wait", open }); };
    const end = (to, how, tone, open) => {
      found.push({ lane, what: `${held.client ? `client ${held.client}` : "a client"}, attempt ${held.attempt}: ${how}`, from: held.from, to, tone, open });
      [since, held] = [to, null];
    };
    for (const each of events) {
      if (each.event === "offered") {
        if (held) end(each.time, "not acknowledged in time", TONES.again);
        else wait(each.time, false);
        held = { from: each.time, client: each.detail.client, attempt: each.detail.attempt || 1 };
      } else if (held && ENDS[each.event]) end(each.time, ENDS[each.event], TONES[each.event] || "held");
    }
    const state = standing ? standing.state : "";
    if (held && state === "held") end(story.at, "has it now", "held", true);
    else if (held && state === "waits again") end(story.at, "not acknowledged in time", TONES.again, true);
    else if (held) end(held.from, "how it ended is not known", "wait");
    else if (WAITING.has(state)) wait(story.at, true);
  }
  return found;
}

export function waterfall({ h, format }, story) {
  const rows = bars(story);
  if (!rows.length) return h("p", { class: "panel empty" }, "Nothing has a time.");
  const from = Math.min(...rows.map((row) => row.from)), whole = Math.max(...rows.map((row) => row.to)) - from || 1;
  const percent = (seconds) => `${Math.min(100, Math.max(0, (100 * seconds) / whole)).toFixed(3)}%`;
  return h("ul", { class: "panel waterfall", "aria-label": "Waterfall" }, rows.map((row) => h("li", {},
    h("span", { class: "path lane" }, row.lane), h("span", { class: "what" }, row.what),
    h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: "bar", dataset: { tone: row.tone, open: row.open ? "yes" : "no" }, style: { left: percent(row.from - from), width: percent(row.to - row.from) } })),
    h("span", { class: "num took" }, `${format.duration(row.to - row.from)}${row.open ? " so far" : ""}`))));
}

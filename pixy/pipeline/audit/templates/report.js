"use strict";
// Charts of the topics' windows. A chart never covers another: what belongs together is an outline over a filled bar, so
// that equal values show both; each fault has a strip of its own; a delay's p50 and p99 are the edges of one band.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => () => style.getPropertyValue("--" + name).trim();
  const utc = (seconds) => new Date(seconds * 1e3).toISOString().slice(0, 19).replace("T", " ");
  const whole = (value) => value.toLocaleString("en-US");
  const short = (value) => value >= 1e6 ? +(value / 1e6).toPrecision(3) + "M" : value >= 1e3 ? +(value / 1e3).toPrecision(3) + "k" : String(value);
  const delay = (ms) => ms == null ? "" : ms < 1000 ? +ms.toPrecision(3) + " ms" : ms < 6e4 ? +(ms / 1e3).toPrecision(3) + " s" : ms < 36e5 ? +(ms / 6e4).toPrecision(3) + " min" : +(ms / 36e5).toPrecision(3) + " h";
  const NAMES = {
    produced: "in the log or the lake", archived: "archived", archive_lost: "lost in the lake", log_lost: "lost in Kafka's log",
    archive_duplicates: "archived twice", archive_out_of_order: "archived out of order", archive_late: "archived late",
    offered: "offered", acked: "acknowledged", retried: "offered again", dead_lettered: "given up", lost: "lost to the group",
    unknown: "unknown whether acknowledged", duplicates_unexplained: "offered twice", out_of_order: "offered out of order",
  };
  const COLOURS = { archive_lost: "loss", log_lost: "loss", lost: "loss", archive_late: "behind", retried: "unknown", unknown: "unknown" };
  const DELAYS = { archive_delay: "message to lake", produce_offer: "message to offer", offer_ack: "offer to acknowledgement" };
  const TICKS = [0.001, 0.01, 0.1, 1, 10, 100, 1e3, 1e4, 6e4, 6e5, 36e5, 36e6, 36e7];
  function ticks(low, high) {
    const found = TICKS.filter((tick) => tick >= low && tick <= high);
    return found.length > 1 ? found : [low * 1.3, high / 1.3];
  }
  // Time of the day, and the date below it where a day begins on the axis.
  function dated(found, step) {
    let day = "";
    return found.map((seconds) => {
      const text = utc(seconds), begins = text.slice(0, 10) !== day;
      day = text.slice(0, 10);
      const time = step >= 86400 ? "" : text.slice(11, step < 60 ? 19 : 16);
      return time + (begins || !time ? (time ? "\n" : "") + day : "");
    });
  }
  const plots = [];

  function element(parent, tag, text, className) {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    if (className) made.className = className;
    parent.append(made);
    return made;
  }

  function draw(box, topic, data) {
    const tip = box.querySelector(".tip"), drawn = [], end = data.starts.at(-1) + data.length;
    const zeros = data.starts.map(() => 0);
    const faulty = [];

    function panel(title, keys, height, last, series, values, scale, lines) {
      const figure = element(box, "div", "", "panel"), label = element(figure, "div", "", "label");
      if (title) element(label, "span", title);
      for (const [name, tone, line] of keys) {
        element(label, "span", name, line ? "key line" : "key").style.setProperty("--key", "var(--" + tone + ")");
      }
      const axis = { stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
      const plot = new uPlot({
        width: figure.clientWidth, height: height + (last ? 42 : 0), legend: { show: false }, padding: [6, 6, last ? 0 : 4, 0],
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC"),
        scales: { x: { range: (_, low, high) => [low, high >= data.starts.at(-1) ? end : high] }, y: scale },
        axes: [
          last ? { ...axis, size: 42, space: 64, values: (_self, found, _axis, _space, step) => dated(found, step) } : { ...axis, size: 0, values: () => [] },
          { ...axis, size: 52, space: 28, ...(scale.splits || height < 60 ? { filter: (_self, found) => found, splits: scale.splits || (() => [0, Math.max(...values[0])]) } : {}), values: (_, found) => found.map((value) => value == null ? "" : scale.unit ? delay(value) : Number.isInteger(value) ? short(value) : "") },
        ],
        cursor: { sync: { key: topic }, y: false, drag: { x: true, y: false }, points: { show: false } },
        series: [{}, ...series],
        hooks: { setCursor: [(self) => told(self)] },
      }, [data.starts, ...values], figure);
      drawn.push(plot);
      told.lines.set(plot, lines);
      plots.push([plot, figure]);
    }

    function told(self) {
      const at = self.cursor.idx;
      if (at == null || self.cursor.left < 0) { tip.hidden = true; return; }
      if (self !== drawn.find((plot) => plot.over.matches(":hover")) && drawn.some((plot) => plot.over.matches(":hover"))) return;
      tip.replaceChildren();
      element(tip, "b", utc(data.starts[at]) + " UTC");
      element(tip, "span", "and the next " + delay(data.length * 1e3), "dim");
      // The chart's own numbers, and whatever is wrong in the same window.
      const own = told.lines.get(self), all = [...own, ...faulty.filter((line) => !own.includes(line))];
      for (const [name, values, shown, fault] of all) {
        if (values[at] == null || (fault && !values[at])) continue;
        const line = element(tip, "div", "", fault);
        element(line, "span", name);
        element(line, "span", shown(values[at]));
      }
      tip.hidden = false;
      const inner = self.over.getBoundingClientRect(), outer = box.getBoundingClientRect();
      const x = inner.left - outer.left + self.cursor.left, width = tip.offsetWidth;
      tip.style.left = Math.max(0, Math.min(x + 14 + width > outer.width ? x - width - 14 : x + 14, outer.width - width)) + "px";
      tip.style.top = inner.top - outer.top + 8 + "px";
    }

    told.lines = new Map();
    const bars = (align = 1) => uPlot.paths.bars({ size: [align ? 0.92 : 1, 200, 1], align: 1 });
    const stepped = uPlot.paths.stepped({ align: 1 });
    const counted = { range: (_, low, high) => [0, Math.max(1, high * 1.08)] };
    const filled = (tone) => ({ paths: bars(), fill: colour(tone), width: 0, points: { show: false } });
    const outline = { paths: stepped, stroke: colour("out"), width: 1.5, points: { show: false } };
    const jobs = [];

    function flow(title, done, tone, doneName, counts) {
      const produced = data.counts.produced || zeros, values = counts[done] || zeros;
      jobs.push((last) => panel(title, [[NAMES.produced, "out", true], [doneName, tone]], 96, last, [filled(tone), outline], [values, produced], counted,
        [[NAMES.produced, produced, whole], ...(counts.offered ? [[NAMES.offered, counts.offered, whole]] : []), [doneName, values, whole]]));
    }
    if (data.counts.archived) {
      flow("Messages", "archived", "fill", "archived", data.counts);
    } else if (!data.groups.length) {
      jobs.push((last) => panel("Messages", [[NAMES.produced, "fill"]], 96, last, [filled("fill")], [data.counts.produced || zeros], counted,
        [[NAMES.produced, data.counts.produced || zeros, whole]]));
    }
    for (const group of data.groups) {
      flow("Group " + group.group, "acked", "ack", "acknowledged", group.counts);
    }
    const faults = [["", data.counts, ["archive_lost", "log_lost", "archive_duplicates", "archive_out_of_order", "archive_late"]],
      ...data.groups.map((group) => [group.group + ": ", group.counts, ["lost", "duplicates_unexplained", "out_of_order", "unknown", "dead_lettered", "retried"]])];
    for (const [prefix, counts, names] of faults) {
      for (const name of names.filter((each) => counts[each])) {
        const tone = COLOURS[name] || "fault";
        const line = [prefix + NAMES[name], counts[name], whole, tone === "loss" ? "loss" : "dim"];
        if (tone !== "unknown") faulty.push(line);
        jobs.push((last) => panel("", [[prefix + NAMES[name], tone]], 44, last, [filled(tone)], [counts[name]], counted, [line]));
      }
    }
    const delays = [["", "archive_delay", data.archive_delay], ...data.groups.flatMap((group) => Object.entries(group.delays).map(([name, found]) => [group.group + ": ", name, found]))];
    for (const [prefix, name, found] of delays) {
      if (!found) continue;
      const lowest = Math.min(...found.p50.filter((value) => value > 0), Infinity), floor = Number.isFinite(lowest) ? lowest : 0.1;
      const [p50, p99] = ["p50", "p99"].map((part) => found[part].map((value) => value == null ? null : Math.max(value, floor)));
      jobs.push((last) => panel(prefix + DELAYS[name], [["p50", "quick", true], ["p99", "slow", true]], 84, last,
        [{ stroke: colour("slow"), width: 1.5, points: { size: 4 } }, { stroke: colour("quick"), width: 1.5, points: { size: 4 } }],
        [p99, p50], { distr: 3, unit: "ms", splits: (_self, _axis, low, high) => ticks(low, high), range: (_, low, high) => [Math.max(low, 1e-3) / 1.5, Math.max(high, 1e-3) * 1.5] },
        [["p50", found.p50, delay], ["p99", found.p99, delay]]));
    }
    jobs.forEach((job, at) => job(at === jobs.length - 1));
    const reset = box.querySelector("button");
    reset.addEventListener("click", () => drawn.forEach((plot) => plot.setScale("x", { min: data.starts[0], max: end })));
    reset.hidden = false;
    box.addEventListener("mouseleave", () => { tip.hidden = true; });
  }

  for (const [at, [topic, data]] of Object.entries(charts).entries()) {
    const box = document.getElementById("topic-" + at);
    if (data.starts.length) draw(box, topic, data);
  }
  addEventListener("resize", () => plots.forEach(([plot, figure]) => plot.setSize({ width: figure.clientWidth, height: plot.height })));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach(([plot]) => plot.redraw(false, true)));
  for (const button of document.querySelectorAll(".command button")) {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
  }
})();

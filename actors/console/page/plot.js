// Plots over the last minutes: lines by uPlot, a heat map of latencies on a canvas. They keep a bounded number of points.
import { h, setText } from "./dom.js";
import { duration } from "./format.js";

const POINTS = 600;
const WHOLE = [1, 2, 5].flatMap((each) => [0, 1, 2, 3, 4, 5, 6].map((power) => each * 10 ** power)).sort((a, b) => a - b);

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Lines over time. series: [{ label, color: "--c1", fill }]; format(value) for the axis. { element, push(at, values), destroy() }. */
export function plot({ title, series, format, height = 130, whole = false }) {
  const data = [[], ...series.map(() => [])];
  const box = h("div", { class: "plot-box" });
  const legend = h("div", { class: "legend" });
  const element = h("figure", { class: "plot" }, h("figcaption", {}, h("span", {}, title), legend), box);
  const values = series.map((each) => {
    const value = h("b", {}, "–");
    const key = h("i", { class: "key" });
    key.style.setProperty("--key", `var(${each.color})`);
    legend.append(h("span", {}, key, `${each.label} `, value));
    return value;
  });
  let chart = null;
  const show = (at) => series.forEach((_, i) => setText(values[i], data[i + 1][at] === undefined || data[i + 1][at] === null ? "–" : format(data[i + 1][at])));
  const draw = () => {
    if (chart) chart.destroy();
    const axis = { stroke: color("--dim"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    chart = new uPlot({
      width: Math.max(160, box.clientWidth), height, legend: { show: false }, padding: [8, 24, 0, 0],
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false }, sync: { key: "console" } },
      scales: { x: { time: true }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : whole ? 5 : 1] } },
      axes: [{ ...axis, size: 24, values: (_, at) => at.map((t) => new Date(t * 1000).toLocaleTimeString("en-GB")), space: 70 },
        { ...axis, ...(whole ? { incrs: WHOLE } : {}), size: 64, values: (_, at) => at.map((value) => (value ? format(value) : "0")), space: 28 }],
      series: [{}, ...series.map((each) => ({ stroke: color(each.color), width: 1.6, points: { show: false }, fill: each.fill ? `${color(each.color)}22` : undefined }))],
      hooks: { setCursor: [(u) => show(u.cursor.idx ?? data[0].length - 1)] },
    }, data, box);
  };
  const resized = new ResizeObserver(() => { if (chart && box.clientWidth) chart.setSize({ width: box.clientWidth, height }); });
  resized.observe(box);
  addEventListener("console-theme", draw);
  return {
    element,
    push(at, row) {
      if (data[0].length && at <= data[0][data[0].length - 1]) return;
      data[0].push(at);
      row.forEach((value, i) => data[i + 1].push(value ?? null));
      if (data[0].length > POINTS) data.forEach((each) => each.shift());
      if (!chart) draw();
      else chart.setData(data);
      if (chart.cursor.idx === null || chart.cursor.idx === undefined) show(data[0].length - 1);
    },
    destroy() {
      resized.disconnect();
      removeEventListener("console-theme", draw);
      if (chart) chart.destroy();
    },
  };
}

/** A heat map: columns are ticks, rows the buckets of a histogram; counts are those of one tick. { element, push(counts), destroy() }. */
export function heatmap({ title, bounds, columns = 150, height = 130 }) {
  const canvas = h("canvas", { role: "img", "aria-label": title });
  const said = h("div", { class: "legend" });
  const element = h("figure", { class: "plot" }, h("figcaption", {}, h("span", {}, title), said), h("div", { class: "plot-box" }, canvas));
  const ticks = [];
  const draw = () => {
    const width = canvas.parentElement.clientWidth, scale = devicePixelRatio || 1;
    if (!width) return;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const paint = canvas.getContext("2d");
    paint.scale(scale, scale);
    const left = 64, bottom = 6, inner = height - bottom - 6;
    const used = ticks.flatMap((counts) => counts.map((count, at) => (count ? at : -1)).filter((at) => at >= 0));
    const low = Math.max(0, Math.min(...used, bounds.length - 1) - 1), high = Math.min(bounds.length - 1, Math.max(...used, 4) + 1);
    const rows = high - low + 1, step = inner / rows, wide = (width - left - 8) / columns;
    const most = Math.max(1, ...ticks.flat());
    paint.font = "11px system-ui, sans-serif";
    paint.textAlign = "right";
    paint.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(rows / 6));
    for (let row = 0; row < rows; row += 1) {
      const y = 6 + inner - (row + 1) * step;
      if (row % every === 0) {
        paint.fillStyle = color("--dim");
        paint.fillText(`≤ ${duration(bounds[low + row])}`, left - 8, y + step / 2);
        paint.fillStyle = color("--grid");
        paint.fillRect(left, y + step, width - left - 8, 1);
      }
      ticks.forEach((counts, at) => {
        const count = counts[low + row];
        if (!count) return;
        paint.globalAlpha = 0.15 + 0.85 * (Math.log1p(count) / Math.log1p(most));
        paint.fillStyle = color("--c1");
        paint.fillRect(left + (columns - ticks.length + at) * wide, y, Math.max(1, wide - 0.5), Math.max(1, step - 0.5));
        paint.globalAlpha = 1;
      });
    }
  };
  const resized = new ResizeObserver(draw);
  resized.observe(element);
  addEventListener("console-theme", draw);
  return {
    element,
    push(counts) {
      ticks.push(counts);
      if (ticks.length > columns) ticks.shift();
      setText(said, `${counts.reduce((sum, each) => sum + each, 0).toLocaleString("en")} in the last second`);
      draw();
    },
    destroy() {
      resized.disconnect();
      removeEventListener("console-theme", draw);
    },
  };
}

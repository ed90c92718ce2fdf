// The figures above every view.
export function summary({ h, format, dom, href }) {
  const figure = (title, hint, link) => {
    const value = h("b", {}, "–");
    const element = h("a", { class: "figure", href: link, title: hint }, value, h("span", {}, title));
    return { element, set: (text, tone) => { dom.setText(value, text); element.dataset.tone = tone || ""; } };
  };
  const actors = figure("actors", "Living actors", "#/tree");
  const trouble = figure("in trouble", "Actors that are stuck, full, failing or restarting", href("actors", { only: "troubled" }));
  const rate = figure("handled/s", "Messages handled per second", href("actors", { sort: "out" }));
  const waiting = figure("waiting", "Messages in all mailboxes", href("actors", { sort: "depth" }));
  const age = figure("oldest", "Age of the oldest message that waits", href("actors", { sort: "age" }));
  const failed = figure("failures", "Failed messages of the actors that live", href("failures"));
  const late = figure("loop late", "How long the event loop made the last tick wait", "#/waits");
  const view = {
    element: h("div", { class: "figures" }, actors.element, trouble.element, rate.element, waiting.element, age.element, failed.element, late.element),
    frame: null,
    update(frame) {
      view.frame = frame;
      const data = frame.data;
      if (!data) return;
      actors.set(format.count(data.actors));
      trouble.set(format.count(data.troubled), data.bad ? "bad" : data.troubled ? "watch" : "");
      rate.set(format.rate(data.out_rate));
      waiting.set(format.short(data.depth));
      age.set(format.duration(data.age), data.age > 10 ? "bad" : "");
      failed.set(format.short(data.failed), data.error_rate ? "bad" : "");
      late.set(format.duration(data.late), data.late > 0.25 ? "bad" : data.late > 0.05 ? "watch" : "");
    },
  };
  return view;
}

// A button that starts or stops the search for code that blocks the event loop; what it finds are events of this view.
import { actions, daemon } from "./actions.js";

export default async function sampler(context) {
  const { root, h, dom } = context;
  const state = h("span", { class: "hint", role: "status" }), button = h("span", {});
  const show = async () => {
    const { sampler: on } = await daemon();
    if (on === undefined) return;
    dom.setText(state, `The sampler of the event loop is ${on ? "on" : "off"}.`);
    dom.replace(button, on
      ? act("Stop the sampler", "sampler", { query: { on: "false" }, title: "Stop the sampler", done: "", text: "Code that blocks the event loop is no longer looked for." })
      : act("Start the sampler", "sampler", { query: { on: "true" }, title: "Start the sampler", done: "", text: "It looks for code that blocks the event loop; what it finds is an event of this view." }));
    if (!root.firstChild) root.append(state, button);
  };
  const act = actions(context, {}, state, { of: "sampler", name: "sampler", after: show });
  await show();
}

// A button beside an actor's name that restarts it, where that is possible and allowed.
import { actions, daemon } from "./actions.js";

export default async function restart(context) {
  const { root, query, h } = context;
  const path = query.path || "", name = path.split("/").pop();
  if (!(await daemon({ path })).restartable) return;
  const outcome = h("span", { class: "hint", role: "status" });
  const act = actions(context, { path }, outcome, { of: "actor", name });
  root.append(outcome, act("Restart", "restart", { title: `Restart ${path}`, done: "It has been told to restart.",
    text: "It begins again as after any failure: what was acknowledged stays so, messages that clients have are offered again." }));
}

// An operator's actions: shown only where they are allowed, and each asks for the group's name first.

/** Whether the caller may act on a group. */
export async function allowed({ cluster, group }) {
  try {
    const answer = await fetch(new URL(`../actions?${new URLSearchParams({ cluster, group })}`, document.baseURI), { headers: { Accept: "application/json" } });
    return answer.ok && (await answer.json()).allowed === true;
  } catch {
    return false;
  }
}

/** Ask for the name in a dialog; resolves to whether it was typed. */
function confirmed(h, { title, text, name, button }) {
  return new Promise((resolve) => {
    const go = h("button", { value: "go", disabled: true }, button);
    const typed = h("input", { type: "text", "aria-label": "Name of the group", autocomplete: "off", spellcheck: "false", maxlength: "300",
      oninput: () => { go.disabled = typed.value !== name; } });
    const dialog = h("dialog", { class: "confirm", "aria-label": title, onclose: () => { dialog.remove(); resolve(dialog.returnValue === "go"); } },
      h("h2", {}, title), h("p", {}, text), h("p", { class: "dim" }, "Type the group's name to confirm: ", h("b", { class: "path" }, name)),
      h("form", { method: "dialog", class: "tools" }, typed, go, h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel")));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Return what makes a button of an action; its outcome goes to an element. */
export function actions({ h, dom }, asked, outcome) {
  const run = async (action, query, done) => {
    const wanted = new URLSearchParams({ ...asked, ...query, confirm: asked.group });
    try {
      const answer = await fetch(new URL(`../actions/${action}?${wanted}`, document.baseURI), { method: "POST", headers: { Accept: "application/json" } });
      const data = await answer.json();
      dom.setText(outcome, answer.ok ? done : `Not done: ${data.error}`);
    } catch (error) {
      dom.setText(outcome, `No answer, it may have been done: ${error.message}`);
    }
  };
  return (label, action, { query = {}, title, text, done }) => h("button", { type: "button", class: "button", onclick: async () => {
    if (await confirmed(h, { title, text, name: asked.group, button: label })) await run(action, query, done);
  } }, label);
}

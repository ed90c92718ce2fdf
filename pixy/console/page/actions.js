// An operator's actions: shown only where they are allowed, and each asks for the name of what it acts on first.

/** What the caller may do: to a group (`allowed`), and to the daemon and one of its actors (`daemon`). */
async function permitted(query) {
  try {
    const answer = await fetch(new URL(`../actions?${new URLSearchParams(query)}`, document.baseURI), { headers: { Accept: "application/json" } });
    return answer.ok ? await answer.json() : {};
  } catch {
    return {};
  }
}

/** Whether the caller may act on a group. */
export async function allowed({ cluster, group }) {
  return (await permitted({ cluster, group })).allowed === true;
}

/** For who may act on the daemon: whether its sampler runs, and whether the actor at a path can be restarted. Others: an empty object. */
export async function daemon(query = {}) {
  const { daemon: found } = await permitted(query);
  return found && found.allowed ? found : {};
}

/** Ask for the name in a dialog, with a further field maybe; resolves to whether it was typed. */
function confirmed(h, { title, text, name, of, button, field }) {
  return new Promise((resolve) => {
    const go = h("button", { value: "go", disabled: true }, button);
    const typed = h("input", { type: "text", "aria-label": `Name of the ${of}`, autocomplete: "off", spellcheck: "false", maxlength: "300",
      oninput: () => { go.disabled = typed.value !== name; } });
    const dialog = h("dialog", { class: "confirm", "aria-label": title, onclose: () => { dialog.remove(); resolve(dialog.returnValue === "go"); } },
      h("h2", {}, title), h("p", {}, text),
      h("form", { method: "dialog" }, field, h("p", { class: "dim" }, `Type the ${of}'s name to confirm: `, h("b", { class: "path" }, name)),
        h("div", { class: "tools" }, typed, go, h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"))));
    document.body.append(dialog);
    dialog.showModal();
    typed.focus();
  });
}

/** Return what makes a button of an action; its outcome goes to an element. `of` and `name` say what has to be confirmed. */
export function actions({ h, dom }, asked, outcome, { of = "group", name = asked.group, after = () => {} } = {}) {
  const run = async (action, query, done) => {
    const wanted = new URLSearchParams({ ...asked, ...query, confirm: name });
    try {
      const answer = await fetch(new URL(`../actions/${action}?${wanted}`, document.baseURI), { method: "POST", headers: { Accept: "application/json" } });
      const data = await answer.json();
      dom.setText(outcome, answer.ok ? done : `Not done: ${data.error}`);
      if (answer.ok) after();
    } catch (error) {
      dom.setText(outcome, `No answer, it may have been done: ${error.message}`);
    }
  };
  return (label, action, { query = {}, title, text, done, field, more = () => ({}) }) => h("button", { type: "button", class: "button", onclick: async () => {
    if (await confirmed(h, { title, text, name, of, button: label, field })) await run(action, { ...query, ...more() }, done);
  } }, label);
}

/** The buttons of a group's page, each made for what it acts on. */
export function buttons(context, asked, outcome) {
  const { h } = context, act = actions(context, asked, outcome);
  return {
    pause: (what, query = {}) => act("Pause", "pause", { query, title: `Pause ${what}`, done: `${what} is paused.`,
      text: "Its messages are offered to nobody until it is resumed. What clients have, they can still acknowledge." }),
    resume: (what, query = {}) => act("Resume", "resume", { query, title: `Resume ${what}`, done: `${what} is resumed.`, text: "Its messages are offered again." }),
    drain: (what) => act("Drain", "drain", { title: `Drain the member of ${what}`, done: "The member has left; the next request has it join again.",
      text: "This daemon's member commits what is acknowledged, and leaves the group. Other members get its partitions; the next request here has it join again." }),
    giveBack: (row) => act("Give back", "give-back", { query: { topic: row.topic, partition: String(row.partition), offset: String(row.offset) },
      title: `Give back ${row.topic}/${row.partition}/${row.offset}`, done: "The next request gets the message.",
      text: `The next request gets the message, and ${row.client || "the program itself"} may be working on it still. Its ack counts nevertheless.` }),
    reset: (topic) => {
      const time = h("input", { type: "datetime-local", step: "1", "aria-label": "Time (UTC)" });
      return act("Reset", "reset", { query: { topic }, title: `Reset the offsets in ${topic}`, done: `The offsets in ${topic} are set.`, field: h("p", {}, "From (UTC; empty: from the beginning) ", time),
        more: () => ({ time: time.value ? String(Date.parse(`${time.value}Z`)) : "beginning" }), text: "The group continues with the first message that is not older. It must have no members: its clients have to stop first." });
    },
  };
}

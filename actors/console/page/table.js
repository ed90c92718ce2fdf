// A table that is updated in place: rows keep their elements, so focus and selection survive a tick.
import { fill, h, replace, setText } from "./dom.js";

/**
 * columns: [{ key, title, hint, text(row), node(row), class, sort, tone(row) }]; `sort` is the name the server sorts by.
 * options: { sort, order, onsort(sort, order), href(row), empty, label, rowClass(row) }.
 * Returns { element, update(rows), setSort(sort, order) }.
 */
export function table(columns, options = {}) {
  const heads = columns.map((column) => {
    const head = h("th", { scope: "col", class: column.class || "", title: column.hint });
    if (!column.sort) return fill(head, column.title);
    const button = h("button", {
      type: "button",
      class: "sort",
      onclick: () => {
        const order = options.sort === column.sort && options.order === "desc" ? "asc" : "desc";
        view.setSort(column.sort, order);
        options.onsort(column.sort, order);
      },
    }, column.title);
    return fill(head, button);
  });
  const body = h("tbody");
  const empty = h("p", { class: "empty", hidden: true }, options.empty || "Nothing here.");
  const element = h("div", { class: "table-box", tabindex: "-1" },
    h("table", { "aria-label": options.label || "" }, h("thead", {}, h("tr", {}, heads)), body), empty);
  const view = {
    element,
    rows: [],
    setSort(sort, order) {
      Object.assign(options, { sort, order });
      columns.forEach((column, at) => {
        if (column.sort === sort) heads[at].setAttribute("aria-sort", order === "asc" ? "ascending" : "descending");
        else heads[at].removeAttribute("aria-sort");
      });
    },
    update(rows) {
      view.rows = rows;
      while (body.rows.length > rows.length) body.lastElementChild.remove();
      while (body.rows.length < rows.length) body.append(newRow(columns, options));
      rows.forEach((row, at) => showRow(body.rows[at], row, columns, options));
      empty.hidden = rows.length > 0;
      element.firstElementChild.hidden = rows.length === 0;
    },
  };
  if (options.sort) view.setSort(options.sort, options.order);
  return view;
}

function newRow(columns, options) {
  const cells = columns.map((column, at) => {
    const cell = h("td", { class: column.class || "" });
    if (options.href && at === 0) cell.append(h("a", { class: "row-link" }));
    return cell;
  });
  return h("tr", {}, cells);
}

function showRow(element, row, columns, options) {
  element.className = options.rowClass ? options.rowClass(row) : "";
  columns.forEach((column, at) => {
    const cell = element.cells[at];
    if (column.node) {
      const key = column.same ? column.same(row) : JSON.stringify(row);
      if (cell.shownKey !== key) {
        cell.shownKey = key;
        replace(cell, column.node(row));
      }
      return;
    }
    const text = column.text ? column.text(row) : row[column.key];
    const target = cell.querySelector(":scope > .row-link") || cell;
    setText(target, text ?? "–");
    if (target !== cell) {
      const href = options.href(row);
      if (href) target.setAttribute("href", href);
      else target.removeAttribute("href");
      target.title = target.textContent;
    }
    if (column.tone) cell.dataset.tone = column.tone(row) || "";
  });
}

/** Previous and next page: { element, update(page, pages, total, noun) }. */
export function pager(onpage) {
  let at = 1, last = 1;
  const where = h("span", { class: "where", role: "status" });
  const previous = h("button", { type: "button", onclick: () => onpage(at - 1), "aria-keyshortcuts": "[" }, "← Previous");
  const next = h("button", { type: "button", onclick: () => onpage(at + 1), "aria-keyshortcuts": "]" }, "Next →");
  return {
    element: h("div", { class: "pager" }, where, previous, next),
    step(by) {
      if (at + by >= 1 && at + by <= last) onpage(at + by);
    },
    update(page, pages, text) {
      [at, last] = [page, pages];
      setText(where, pages > 1 ? `${text} · page ${page} of ${pages}` : text);
      previous.disabled = page <= 1;
      next.disabled = page >= pages;
      previous.hidden = next.hidden = pages <= 1;
    },
  };
}

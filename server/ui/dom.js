// SPDX-License-Identifier: Apache-2.0
// Elements out of values. Text is always text: names of runs, shards and people come from outside, and nothing
// here reads markup.

const SVG = new Set(["svg", "g", "path", "circle", "rect", "line", "text", "title", "polyline"]);

// h("a", {href: "#/", class: "x", onclick: f}, "text", element, [more])
export function h(tag, properties, ...children) {
  const element = SVG.has(tag) && tag !== "title" ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined && child !== false)
      element.append(child instanceof Node ? child : String(child));
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// A table that a phone can scroll by itself. columns: [{name, title, of: row => cell, number}]
export function table(caption, columns, rows, empty) {
  if (!rows.length) return h("p", {class: "empty"}, empty);
  return h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption},
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map(column =>
        h("th", {scope: "col", class: column.number && "number", title: column.title}, column.name)))),
      h("tbody", {}, rows.map(row => h("tr", {class: row.tone}, columns.map(column =>
        h("td", {class: column.number && "number"}, column.of(row))))))));
}

export function facts(pairs) {
  return h("dl", {class: "facts"}, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && value.length !== 0)
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function link(parts, text, properties) {
  return h("a", {href: path(parts), ...properties}, text);
}

// ["run", "llm", "7b"] -> "#/run/llm/7b"; each part may hold anything.
export function path(parts, query) {
  const said = Object.entries(query || {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#/${parts.map(encodeURIComponent).join("/")}${said.length ? `?${new URLSearchParams(said)}` : ""}`;
}

// Asks once before something is changed. Resolves to the text that was typed, or null.
export function ask(question, {button = "Do it", input, detail} = {}) {
  return new Promise(resolve => {
    const field = input !== undefined ? h("input", {type: "text", value: input, "aria-label": question}) : null;
    const dialog = h("dialog", {"aria-label": question},
      h("form", {method: "dialog"},
        h("p", {}, question), detail ? h("p", {class: "quiet"}, detail) : null, field,
        h("div", {class: "buttons"}, h("button", {value: "no", type: "submit", formnovalidate: true}, "Cancel"),
          h("button", {value: "yes", type: "submit", class: "main"}, button))));
    dialog.addEventListener("close", () => {
      const agreed = dialog.returnValue === "yes";
      dialog.remove();
      resolve(agreed ? (field ? field.value : "") : null);
    });
    document.body.append(dialog);
    dialog.showModal();
    (field || dialog.querySelector(".main")).focus();
  });
}

let said;
// What the server answered to a change, for a while at the edge of the page.
export function tell(text, isProblem) {
  said?.remove();
  said = h("p", {class: isProblem ? "told problem" : "told", role: isProblem ? "alert" : "status"}, text,
    h("button", {type: "button", "aria-label": "Close", onclick: () => said.remove()}, "×"));
  document.body.append(said);
  const own = said;
  if (!isProblem) setTimeout(() => own.remove(), 8000);
}

// Making elements. Text only ever enters the page as text: names and metadata come from files.

const SVG = "http://www.w3.org/2000/svg";
const MATHML = "http://www.w3.org/1998/Math/MathML";

/** Return an element with attributes (a function is a listener) and children (strings become text). */
function element(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

function furnish(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== ""));
  return made;
}

/** Return a formula from its tree [tag, text or children, attributes]. */
function formula(tree) {
  const math = document.createElementNS(MATHML, "math");
  math.setAttribute("display", "block");
  math.append(formulaPart(tree));
  return math;
}

function formulaPart([tag, inside, attributes]) {
  const made = document.createElementNS(MATHML, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (typeof inside === "string") made.textContent = inside;
  else made.append(...inside.map(formulaPart));
  return made;
}

/** Return a table; numbers are cells that are not strings or that look like numbers, aligned right. */
function table(caption, heads, rows) {
  const cell = (tag, content, column) =>
    element(
      tag,
      { class: heads[column].startsWith("#") ? "number" : null, scope: tag === "th" ? "col" : null },
      content,
    );
  return element(
    "table",
    {},
    element("caption", { class: "unseen" }, caption),
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        heads.map((head, i) => cell("th", head.replace("#", ""), i)),
      ),
    ),
    element(
      "tbody",
      {},
      rows.map((row) =>
        element(
          "tr",
          {},
          row.map((content, i) => cell("td", content, i)),
        ),
      ),
    ),
  );
}

/** Return four significant digits, with a true minus sign. */
function number(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  const text =
    size !== 0 && (size < 1e-4 || size >= 1e6)
      ? x.toExponential(digits - 1)
      : String(Number(x.toPrecision(digits)));
  return text
    .replace(/\.?0+e/, "e")
    .replace("e+", "e")
    .replaceAll("-", "−");
}

function count(n) {
  return n.toLocaleString("en-US");
}

/** Return a share in percent; only a whole is 100 %, and only nothing is 0 %. */
function percent(share) {
  const value = 100 * share;
  if (value === 0) return "0 %";
  if (value < 0.01) return "< 0.01 %";
  if (value < 10) return `${value.toPrecision(2)} %`;
  if (value > 99 && value < 100) return `${Math.min(value, 99.99).toFixed(2)} %`;
  return `${value.toFixed(0)} %`;
}

/** Return a count in millions or thousands: 11.0 M. */
function compact(n, digits = 1) {
  if (n >= 1e6) return `${(n / 1e6).toFixed(digits)} M`;
  return n >= 1e3 ? `${(n / 1e3).toFixed(n < 1e4 ? digits : 0)} k` : String(n);
}

/** Return a shape such as 16 × 8 × 160. */
function times(shape) {
  return shape.map(count).join(" × ");
}

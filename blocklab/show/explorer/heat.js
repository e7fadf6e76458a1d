// Heat maps: one cell a value, blue below zero, orange above; what is beyond the range is marked, not clipped away.

const MARGIN = { left: 58, top: 5, bottom: 22 };

/** Return the colours of the page's theme as [red, green, blue]. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => {
    const hex = style.getPropertyValue(`--${name}`).trim();
    return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  };
  const names = ["cold-2", "cold-1", "zero", "warm-1", "warm-2", "cold-beyond", "warm-beyond", "hidden", "nan"];
  return Object.fromEntries(names.map((name) => [name, read(name)]));
}

/** Return the colour of a value on a symmetric range. */
function colourOf(value, limit, colours) {
  if (Number.isNaN(value)) return colours.nan;
  if (value === -Infinity) return colours.hidden;
  const edge = limit * (1 + 2 ** -8); // the page's values are rounded to bfloat16, perhaps upwards
  if (value > edge) return colours["warm-beyond"];
  if (value < -edge) return colours["cold-beyond"];
  const place = Math.min(2, 2 * Math.abs(value / limit));
  const side = value < 0 ? "cold" : "warm";
  return place < 1
    ? mix(colours.zero, colours[`${side}-1`], place)
    : mix(colours[`${side}-1`], colours[`${side}-2`], place - 1);
}

function mix(from, to, share) {
  return from.map((c, i) => Math.round(c + (to[i] - c) * share));
}

/** Return a grid of fewer columns: of each group, the value of the largest magnitude. Hidden loses, NaN wins. */
function poolColumns(grid, most) {
  const factor = Math.ceil(grid.columns / Math.max(1, most));
  if (factor <= 1) return grid;
  const columns = Math.ceil(grid.columns / factor);
  const values = new Float32Array(grid.rows * columns);
  for (let r = 0; r < grid.rows; r++)
    for (let c = 0; c < columns; c++) {
      const from = r * grid.columns + c * factor;
      values[r * columns + c] = strongest(grid.values, from, Math.min(from + factor, (r + 1) * grid.columns));
    }
  return { ...grid, columns, values, every: grid.every * factor };
}

function strongest(values, from, to) {
  const rank = (x) => (Number.isNaN(x) ? Infinity : x === -Infinity ? -1 : Math.abs(x));
  let best = values[from];
  for (let i = from + 1; i < to; i++) if (rank(values[i]) > rank(best)) best = values[i];
  return best;
}

/**
 * Return a figure with a heat map of `grid` {rows, columns, values, everyRow, every} and what a pointer reads there.
 *
 * options: limit, title, rowLabel(row), columnLabel(column), read(row, column, value), marked (row or null),
 *          choose(row) or null
 */
function heatMap(grid, options) {
  const canvas = element("canvas", { role: "img", "aria-label": options.description });
  const output = element("output", { class: "reading" }, "\u00a0");
  const figure = element("figure", { class: "heat" }, element("figcaption", {}, options.title), canvas, output);
  let shown = grid;
  const draw = () => {
    shown = drawHeat(canvas, grid, options);
    const every = shown.every > 1 ? `each cell: the strongest of ${shown.every} ${options.columnName}s` : "";
    const rows = grid.everyRow > 1 ? `each row: the strongest of ${grid.everyRow} ${options.rowName}s` : "";
    output.dataset.rest = [every, rows].filter(Boolean).join("; ") || "\u00a0";
    output.textContent = output.dataset.rest;
  };
  const cellAt = (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor(
      ((event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left)) * shown.columns,
    );
    const row = Math.floor(
      ((event.clientY - box.top - MARGIN.top) / (box.height - MARGIN.top - MARGIN.bottom)) * shown.rows,
    );
    return row < 0 || column < 0 || row >= shown.rows || column >= shown.columns ? null : [row, column];
  };
  canvas.addEventListener("pointermove", (event) => {
    const cell = cellAt(event);
    output.textContent = cell ? options.read(cell[0], cell[1], shown) : output.dataset.rest;
  });
  canvas.addEventListener("pointerleave", () => {
    output.textContent = output.dataset.rest;
  });
  if (options.choose) {
    canvas.classList.add("choosing");
    canvas.addEventListener("click", (event) => {
      const cell = cellAt(event);
      if (cell) options.choose(cell[0]);
    });
  }
  figure.draw = draw;
  return figure;
}

/** Draw the cells, their labels and the marked row; return the grid as drawn. */
function drawHeat(canvas, grid, options) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(120, canvas.clientWidth) - MARGIN.left;
  const shown = poolColumns(grid, Math.floor(width * ratio));
  const cell = Math.max(2, Math.min(options.tallest ?? 16, Math.floor((options.height ?? 340) / grid.rows)));
  const height = cell * grid.rows;
  canvas.style.height = `${MARGIN.top + height + MARGIN.bottom}px`;
  canvas.width = Math.round((width + MARGIN.left) * ratio);
  canvas.height = Math.round((MARGIN.top + height + MARGIN.bottom) * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.translate(MARGIN.left, MARGIN.top);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(cellImage(shown, options.limit), 0, 0, width, height);
  strikeHidden(pen, shown, width / shown.columns, cell);
  labelRows(pen, shown, width, cell, options);
  labelColumns(pen, shown, width, height, options);
  return shown;
}

/** Return a small canvas of one pixel a cell. */
function cellImage(grid, limit) {
  const small = document.createElement("canvas");
  small.width = grid.columns;
  small.height = grid.rows;
  const colours = palette();
  const image = new ImageData(grid.columns, grid.rows);
  grid.values.forEach((value, i) => {
    image.data.set(colourOf(value, limit, colours), 4 * i);
    image.data[4 * i + 3] = 255;
  });
  small.getContext("2d").putImageData(image, 0, 0);
  return small;
}

/** Draw a stroke through hidden cells that are large enough to show one. */
function strikeHidden(pen, grid, wide, tall) {
  if (wide < 5 || tall < 5) return;
  pen.strokeStyle = inkColour("--faint");
  pen.lineWidth = 0.6;
  pen.beginPath();
  grid.values.forEach((value, i) => {
    if (value !== -Infinity) return;
    const x = (i % grid.columns) * wide;
    const y = Math.floor(i / grid.columns) * tall;
    pen.moveTo(x + 1, y + tall - 1);
    pen.lineTo(x + wide - 1, y + 1);
  });
  pen.stroke();
}

function labelRows(pen, grid, width, cell, options) {
  const least = Math.max(1, Math.ceil(11 / cell));
  const step = grid.everyRow === 1 && least > 2 ? niceStep(least) : least;
  pen.font = "11px ui-monospace, monospace";
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (let r = 0; r < grid.rows; r++) {
    const marked = r === options.marked;
    if (!marked && (r % step || Math.abs(r - options.marked) < step)) continue;
    pen.fillStyle = inkColour(marked ? "--accent" : "--quiet");
    pen.fillText((marked ? "▸" : "") + options.rowLabel(r), -6, (r + 0.5) * cell, MARGIN.left - 8);
  }
  if (options.marked === null || options.marked >= grid.rows) return;
  pen.strokeStyle = inkColour("--accent");
  pen.lineWidth = 1.5;
  const beside = cell < 6 ? 1.25 : 0; // around a thin row, not over it
  pen.strokeRect(0.75, options.marked * cell - beside, width - 1.5, cell + 2 * beside);
}

/** Label columns with the names of keys, or with channels at round numbers. */
function labelColumns(pen, grid, width, height, options) {
  const size = grid.columns * grid.every;
  const wide = width / size;
  const measure = (c) => pen.measureText(options.columnLabel(c)).width;
  const shown = options.named ? [...Array(size).keys()] : [size - 1];
  const room = (Math.max(...shown.map(measure)) + (options.named ? 2 : 14)) / wide;
  const stride = options.named ? Math.ceil(room) : niceStep(room);
  pen.fillStyle = inkColour("--quiet");
  pen.textBaseline = "top";
  pen.textAlign = "center";
  for (let c = 0; c < size; c += stride) {
    const x = (c + grid.every / 2) * wide;
    if (x + measure(c) / 2 <= width + 1) pen.fillText(options.columnLabel(c), x, height + 6);
  }
}

/** Return the next of 1, 2, 5, 10, 20, 50, ... */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least);
}

function inkColour(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}

/** Return the key to the colours: the range, what is beyond it, what is hidden. */
function colourKey(limit, beyond, hidden, nan) {
  const swatch = (name, text) => element("span", { class: "swatch" }, element("i", { class: name }), text);
  return element(
    "p",
    { class: "key" },
    element("span", { class: "ramp-number" }, number(-limit, 3)),
    element("span", {
      class: "ramp",
      role: "img",
      "aria-label": `colours from ${number(-limit, 3)}, blue, to ${number(limit, 3)}, orange`,
    }),
    element("span", { class: "ramp-number" }, number(limit, 3)),
    beyond
      ? element(
          "span",
          { class: "swatch" },
          element("i", { class: "cold-beyond" }),
          element("i", { class: "warm-beyond" }),
          `beyond: ${count(beyond)}`,
        )
      : null,
    hidden ? swatch("hidden", `hidden: ${count(hidden)}`) : null,
    nan ? swatch("nan", `NaN: ${count(nan)}`) : null,
  );
}

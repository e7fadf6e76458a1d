// Charts in SVG: the histogram, the use of the 256 FP8 codes, one token's channels.

const PLOT = { width: 640, left: 58, right: 10, top: 10, bottom: 24 };

/** Return an empty chart of a height, described in words for those who cannot see it. */
function chart(height, description, className) {
  return svg("svg", {
    viewBox: `0 0 ${PLOT.width} ${height}`,
    role: "img",
    "aria-label": description,
    class: `chart ${className}`,
  });
}

function text(x, y, content, anchor = "middle", className = "tick") {
  return svg("text", { x, y, "text-anchor": anchor, class: className }, content);
}

/** Return the histogram of one or two values on the same bins; counts are drawn on a logarithmic scale. */
function histogramChart(mine, other, limit) {
  const height = 150;
  const most = Math.max(
    1,
    ...mine.counts,
    mine.below,
    mine.above,
    ...(other ? [...other.counts, other.below, other.above] : []),
  );
  const made = chart(
    height,
    `Histogram from ${number(-limit)} to ${number(limit)}; the fullest bin holds ${count(most)}`,
    "histogram",
  );
  const bins = mine.counts.length;
  const inner = PLOT.width - PLOT.left - PLOT.right;
  const wide = inner / (bins + 4);
  const floor = height - PLOT.bottom;
  const tall = (n) => (n ? ((Math.log10(n) + 0.15) / (Math.log10(most) + 0.15)) * (floor - PLOT.top) : 0);
  const left = (bin) => PLOT.left + (bin + 2) * wide;
  const bar = (x, n, className, says) =>
    svg(
      "rect",
      { x, y: floor - tall(n), width: Math.max(0.5, wide - 0.6), height: tall(n), class: className },
      svg("title", {}, says),
    );
  mine.counts.forEach((n, bin) =>
    made.append(
      bar(left(bin), n, "bar", `about ${number((((bin + 0.5) / bins) * 2 - 1) * limit, 3)}: ${count(n)}`),
    ),
  );
  if (mine.below)
    made.append(bar(PLOT.left, mine.below, "bar low", `below ${number(-limit)}: ${count(mine.below)}`));
  if (mine.above)
    made.append(bar(left(bins + 1), mine.above, "bar high", `above ${number(limit)}: ${count(mine.above)}`));
  if (other) {
    const points = other.counts.flatMap((n, bin) => [
      `${left(bin)},${floor - tall(n)}`,
      `${left(bin + 1)},${floor - tall(n)}`,
    ]);
    made.append(svg("polyline", { points: points.join(" "), class: "outline" }));
    const edge = (x, n) =>
      svg("line", { x1: x, x2: x + wide, y1: floor - tall(n), y2: floor - tall(n), class: "outline" });
    made.append(edge(PLOT.left, other.below), edge(left(bins + 1), other.above));
  }
  for (let power = 0; 10 ** power <= most; power++) {
    const y = floor - tall(10 ** power);
    made.append(
      svg("line", { x1: PLOT.left - 4, x2: PLOT.left, y1: y, y2: y, class: "axis" }),
      text(PLOT.left - 7, y + 4, compact(10 ** power, 0), "end"),
    );
  }
  made.append(svg("line", { x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: floor, y2: floor, class: "axis" }));
  for (const share of [-1, -0.5, 0, 0.5, 1])
    made.append(text(left(((share + 1) / 2) * bins), floor + 15, number(share * limit, 3)));
  return made;
}

/** Return how often each FP8 code occurs: positive codes up, negative down, in the order of their magnitude. */
function codeChart({ codes, values, first_normal: firstNormal, largest_code: largest }) {
  const height = 210;
  const most = Math.max(1, ...codes);
  const made = chart(height, `Use of the 256 codes; the most used holds ${count(most)} values`, "codes");
  const middle = (height - 20) / 2 + 2;
  const wide = (PLOT.width - PLOT.left - PLOT.right) / 128;
  const tall = (n) => ((Math.log10(n) + 0.15) / (Math.log10(most) + 0.15)) * (middle - 12);
  const left = (magnitude) => PLOT.left + magnitude * wide;
  made.append(
    svg("rect", { x: left(0), y: 6, width: firstNormal * wide, height: height - 28, class: "subnormal" }),
  );
  codes.forEach((n, code) => {
    if (!n) return;
    const magnitude = code & 0x7f;
    const value = values[magnitude];
    const kind = value === null ? "nan" : value === 0 ? "zero" : magnitude === largest ? "largest" : "";
    const y = code > 0x7f ? middle + 0.5 : middle - 0.5 - tall(n);
    const says = `${value === null ? "no number" : number(code > 0x7f ? -value : value)}: ${count(n)}`;
    const size = { x: left(magnitude), y, width: Math.max(0.5, wide - 0.6), height: tall(n) };
    made.append(svg("rect", { ...size, class: `bar ${kind}` }, svg("title", {}, says)));
  });
  made.append(
    svg("line", { x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: middle, y2: middle, class: "axis" }),
  );
  made.append(text(PLOT.left - 7, middle - 40, "+", "end"), text(PLOT.left - 7, middle + 46, "−", "end"));
  for (const magnitude of [0, ...codeTicks(firstNormal, largest), largest])
    made.append(text(left(magnitude + 0.5), height - 4, powerText(values[magnitude])));
  made.append(text(left(firstNormal) + 4, 17, "subnormal: left of here", "start", "tick faint"));
  return made;
}

/** Return the codes of powers of two to write below a chart, some 16 codes apart. */
function codeTicks(firstNormal, largest) {
  const ticks = [];
  for (let code = Math.max(firstNormal, 8); code < largest - 8; code += 16) ticks.push(code);
  return ticks;
}

/** Return a power of two below 1 as 2⁻⁶, other numbers as they are. */
function powerText(value) {
  return value > 0 && value < 1 && Number.isInteger(Math.log2(value))
    ? `2${superscript(Math.log2(value))}`
    : number(value, 6);
}

/** Return the channels of one token as bars from zero; channels beyond the range are marked at its edge. */
function profileChart(values, every, limit, name) {
  const height = 120;
  const made = chart(height, `Values of all ${name}s of this token`, "profile");
  const grid = poolColumns(
    { rows: 1, columns: values.length, values, everyRow: 1, every },
    PLOT.width - PLOT.left - PLOT.right,
  );
  const wide = (PLOT.width - PLOT.left - PLOT.right) / grid.columns;
  const middle = (height - 18) / 2;
  const reach = middle - 6;
  let path = "";
  grid.values.forEach((value, c) => {
    if (!Number.isFinite(value)) return;
    const x = PLOT.left + c * wide;
    const y = middle - Math.max(-1, Math.min(1, value / limit)) * reach;
    path += `M${x.toFixed(2)} ${middle}V${y.toFixed(2)}h${Math.max(0.6, wide - 0.3).toFixed(2)}V${middle}z`;
    if (Math.abs(value) > limit)
      made.append(
        svg(
          "circle",
          { cx: x + wide / 2, cy: value > 0 ? 4 : height - 22, r: 2.2, class: "beyond" },
          svg("title", {}, `${name} ${c * grid.every}: ${number(value)}`),
        ),
      );
  });
  made.append(
    svg("path", { d: path, class: "bar" }),
    svg("line", { x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: middle, y2: middle, class: "axis" }),
  );
  made.append(
    text(PLOT.left - 6, 10, number(limit, 3), "end"),
    text(PLOT.left - 6, middle + 4, "0", "end"),
    text(PLOT.left - 6, height - 18, number(-limit, 3), "end"),
  );
  const step = niceStep((grid.columns * grid.every) / 8);
  for (let c = 0; c < grid.columns * grid.every; c += step)
    made.append(text(PLOT.left + (c / grid.every + 0.5) * wide, height - 3, String(c)));
  return made;
}

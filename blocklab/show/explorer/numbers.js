// The values of one step as numbers: statistics, histogram, FP8, and how two traces differ.

/** Return exact numbers from all values, with the second trace's beside them, and the histogram. */
function numbersSection(step, view) {
  const mine = step.numbers;
  const other = step.against ? step.against.numbers : null;
  const size = step.shape.reduce((a, b) => a * b, 1);
  const lines = [
    ["root mean square", (n) => number(n.rms)],
    ["least", (n) => number(n.least)],
    ["most", (n) => number(n.most)],
    ["zero", (n) => percent(n.zeros)],
    mine.hidden || (other && other.hidden) ? ["infinite or hidden", (n) => count(n.hidden)] : null,
    mine.nan || (other && other.nan) ? ["NaN", (n) => count(n.nan)] : null,
  ].filter(Boolean);
  const heads = other ? ["", ...traceNames(view.page).map((name) => `#${name}`)] : ["", "#value"];
  const rows = lines.map(([name, read]) => (other ? [name, read(mine), read(other)] : [name, read(mine)]));
  rows.push(other ? ["values", count(size), count(size)] : ["values", count(size)]);
  const section = element(
    "section",
    {},
    element("h3", {}, "Numbers, from all values"),
    element("div", { class: "columns wide" }, table("Statistics", heads, rows), loudTable(mine.channels)),
  );
  if (step.histogram.counts.some(Boolean))
    section.append(
      element("h4", {}, "How many values are how large (logarithmic)"),
      histogramChart(step.histogram, step.against ? step.against.histogram : null, step.limit),
      step.against
        ? element(
            "p",
            { class: "legend" },
            element("i", { class: "bar" }),
            traceNames(view.page)[0],
            element("i", { class: "outline" }),
            traceNames(view.page)[1],
          )
        : "",
    );
  return section;
}

function loudTable(channels) {
  if (!channels.length) return "";
  const rows = channels.map((c) => [
    channelName(c.index),
    number(c.rms, 3),
    c.ratio ? `${number(c.ratio, 3)} ×` : "",
  ]);
  return table("Loudest channels", ["loudest channels", "#rms", "#median"], rows);
}

/** Return the FP8 view of a linear's input: on the linear's page, and on the page of the step it reads. */
function fp8Section(step, view) {
  const linear = view.page.fp8[step.name]
    ? step.name
    : Object.keys(view.page.fp8).find((name) => view.page.fp8[name].input === step.name);
  if (!linear) return "";
  const fp8 = view.page.fp8[linear];
  const readers = Object.keys(view.page.fp8).filter((name) => view.page.fp8[name].input === fp8.input);
  const what =
    linear === step.name ? `Its input ${fp8.input} in FP8` : `In FP8, as the input of ${readers.join(" and ")}`;
  const used = fp8.codes.filter(Boolean).length;
  const how = fp8.recorded
    ? "As this run quantised it"
    : "This run did not quantise it; if it did, per token in groups of 128";
  const most = number(fp8.values[fp8.largest_code], 6);
  const normal = powerText(fp8.values[fp8.first_normal]);
  const grid = headGrid(pictureOf(view.words, fp8.picture), view.state.sequence, 0);
  return element(
    "section",
    { class: "fp8" },
    element("h3", {}, what),
    element(
      "p",
      {},
      `${how}: ${fp8.format.replace("fn", "")}, ${used} of the 256 codes occur. `,
      element("b", {}, percent(fp8.largest)),
      ` at ±${most} (the largest of those that share a scale is, by construction), `,
      element("b", {}, percent(fp8.subnormal)),
      ` subnormal, below ${normal} with fewer digits, `,
      element("b", {}, percent(fp8.zero)),
      ` zero${fp8.special ? `, ${count(fp8.special)} NaN or infinite` : ""}.`,
    ),
    codeChart(fp8),
    scaleMap(grid, fp8, view),
  );
}

/** Return the scales as a heat map of powers of two around their middle. */
function scaleMap(grid, fp8, view) {
  const middle = Math.round((Math.log2(fp8.scale_min) + Math.log2(fp8.scale_max)) / 2);
  const centred = { ...grid, values: grid.values.map((v) => v - middle) };
  // Logarithms are rounded to bfloat16 like all values, hence the little room.
  const limit =
    1.01 *
    Math.max(1, Math.abs(Math.log2(fp8.scale_max) - middle), Math.abs(Math.log2(fp8.scale_min) - middle));
  const scale = (v) => number(2 ** (v + middle), 3);
  return element(
    "div",
    {},
    heatMap(centred, {
      limit,
      title:
        `scales, ${number(fp8.scale_min, 3)} to ${number(fp8.scale_max, 3)}: token down, group across;` +
        ` as powers of two around ${scale(0)}`,
      height: 160,
      tallest: 12,
      rowName: "token",
      columnName: "group",
      marked: Math.floor(view.state.token / grid.everyRow),
      description: `Heat map of the scales, ${grid.rows} tokens by ${grid.columns} groups`,
      rowLabel: (row) => tokenName(view.page, row * grid.everyRow),
      columnLabel: String,
      read: (row, c, shown) =>
        `token ${tokenName(view.page, row * grid.everyRow)}, group ${c * shown.every}: ${scale(shown.values[row * shown.columns + c])}`,
      choose: (row) => view.set({ token: row * grid.everyRow }),
    }),
  );
}

/** Return how the two traces differ: at this step, and at every step. */
function errorSection(step, view) {
  const { page } = view;
  const compared = page.steps.filter((s) => s.against);
  if (!compared.length) return "";
  const arrives = Object.fromEntries(compared.map((s) => [s.name, s.against.measures.relative]));
  const curves = { arrives, ...page.curves };
  const names = page.steps.map((s) => s.name).filter((name) => name in arrives);
  const legend = Object.keys(curves).map((name) =>
    element(
      "span",
      {},
      element("i", { class: (LINES[name] || LINES.arrives)[0] }),
      (LINES[name] || [, name])[1],
    ),
  );
  const section = element("section", { class: "error" }, element("h3", {}, `Error against ${otherName(page)}`));
  if (step.against) section.append(measuresTable(step));
  if (compared.every((s) => s.against.measures.equal === 1)) {
    section.append(element("p", {}, `All ${names.length} steps that both traces have are equal, to the bit.`));
    return section;
  }
  section.append(
    element("h4", {}, "Relative error of every step, |a − b| / |b|"),
    errorChart(curves, names, step.name, view.go),
    element("p", { class: "legend" }, legend),
    errorTable(curves, names),
  );
  return section;
}

function measuresTable(step) {
  const m = step.against.measures;
  const place = [
    m.worst_position ? `token ${m.worst_position[1]}` : null,
    m.worst_head === null ? null : `head ${m.worst_head}`,
    m.worst_block === null ? null : `channels from ${m.worst_block}`,
  ]
    .filter((part) => part !== null)
    .join(", ");
  const known = (x, digits) => (x === null ? "–" : number(x, digits));
  return element(
    "div",
    { class: "wide" },
    table(
      "How the two traces differ",
      [
        "#relative error",
        "#largest",
        "#largest, ulp",
        "#99 %, ulp",
        "#cosine",
        "#best-fit ratio",
        "#equal",
        "worst at",
      ],
      [
        [
          m.relative === null ? "not finite" : number(m.relative),
          known(m.max_abs),
          known(m.max_ulp),
          known(m.p99_ulp),
          known(m.cosine, 7),
          known(m.ratio, 6),
          percent(m.equal),
          place || "–",
        ],
      ],
    ),
  );
}

function errorTable(curves, names) {
  const labels = Object.keys(curves);
  const rows = names.map((name) => [
    name,
    ...labels.map((label) =>
      curves[label][name] === undefined || curves[label][name] === null ? "–" : number(curves[label][name], 3),
    ),
  ]);
  return element(
    "details",
    {},
    element("summary", {}, "as a table"),
    element(
      "div",
      { class: "wide" },
      table("Relative error of every step", ["step", ...labels.map((l) => `#${l}`)], rows),
    ),
  );
}

// The panel of one step: its name, formula and facts, and what to see at once.

/** Fill the panel for the chosen step, token, head and sequence. `view` is {page, words, state, go, set}. */
function drawPanel(panel, view) {
  const step = view.page.steps.find((s) => s.name === view.state.step);
  panel.replaceChildren(
    ...[
      heading(step, view),
      formulaBlock(step),
      facts(step, view),
      ...(step.numbers ? valueSections(step, view) : [absence(step, view)]),
      errorSection(step, view),
    ].filter(Boolean),
  );
  redraw(panel);
}

/** Draw all heat maps again, as the room or the colours have changed. */
function redraw(panel) {
  for (const figure of panel.querySelectorAll("figure.heat")) figure.draw();
}

function heading(step, view) {
  const names = view.page.steps.map((s) => s.name);
  const place = names.indexOf(step.name);
  const turn = (by, label, sign) =>
    element(
      "button",
      {
        type: "button",
        "aria-label": label,
        title: label,
        disabled: !names[place + by],
        click: () => view.go(names[place + by]),
      },
      sign,
    );
  return element(
    "header",
    { class: "step" },
    element(
      "div",
      {},
      element("p", { class: "place" }, `step ${place + 1} of ${names.length}`),
      element("h2", { id: "step-name" }, step.name),
      element("p", { class: "note" }, step.note),
    ),
    element("p", { class: "turn" }, turn(-1, "previous step", "↑"), turn(1, "next step", "↓")),
  );
}

function formulaBlock(step) {
  return element("div", { class: "formula" }, formula(step.formula));
}

function facts(step, view) {
  const link = (name) => element("button", { type: "button", class: "link", click: () => view.go(name) }, name);
  const links = (names) => names.flatMap((name, i) => (i ? [", ", link(name)] : [link(name)]));
  const shape =
    step.shape && step.axes.length === step.shape.length
      ? step.axes.map(([, meaning], i) => `${meaning} ${count(step.shape[i])}`).join(", ")
      : step.shape
        ? times(step.shape)
        : null;
  const rows = [
    ["shape", shape],
    ["stored as", step.format || null],
    ["computed from", step.inputs.length ? links(step.inputs) : null],
    ["used by", step.used_by.length ? links(step.used_by) : null],
    ["parameters", step.weight ? weightText(step.weight) : null],
    ["source", step.source],
    ["other names", aliasText(step.aliases)],
  ];
  return element(
    "dl",
    { class: "facts" },
    rows
      .filter(([, value]) => value && value.length)
      .map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])
      .flat(),
  );
}

function weightText(weight) {
  const size = weight.shape.reduce((a, b) => a * b, 1);
  return [
    element("code", {}, weight.name),
    weight.shape.length ? ` ${times(weight.shape)}` + (weight.shape.length > 1 ? ` = ${count(size)}` : "") : "",
  ];
}

function aliasText(aliases) {
  return Object.entries(aliases)
    .filter(([, names]) => names.length)
    .flatMap(([program, names], i) => [
      i ? "; " : "",
      `${program} `,
      ...names.flatMap((name, j) => (j ? [", ", element("code", {}, name)] : [element("code", {}, name)])),
    ]);
}

function absence(step, view) {
  const only = view.page.only_against.includes(step.name);
  return element(
    "p",
    { class: "warning" },
    step.shape
      ? "This step is empty in the trace."
      : only
        ? "Only the second trace has this step."
        : "This trace does not have the values of this step.",
  );
}

/** Return everything that shows values: glance, controls, pictures, numbers, histogram, FP8. */
function valueSections(step, view) {
  return [
    glance(step, view),
    controls(step, view),
    pictures(step, view),
    tokenSection(step, view),
    gazeSection(step, view),
    numbersSection(step, view),
    fp8Section(step, view),
  ];
}

/** Return a few sentences: what to see at once. */
function glance(step, view) {
  const said = [];
  const loud = step.numbers.channels[0];
  if (loud && loud.ratio)
    said.push([
      "Loudest channel: ",
      element("b", {}, channelName(loud.index)),
      `, rms ${number(loud.rms, 3)}, ${number(loud.ratio, 3)} times the median channel.`,
    ]);
  if (step.name === "attn_scores" && view.page.model) said.push(scaleText(view.page.model));
  if (step.name === "attn_masked" && step.numbers.hidden)
    said.push([
      `The mask hides ${count(step.numbers.hidden)} of ${count(step.shape.reduce((a, b) => a * b, 1))} scores.`,
    ]);
  if (step.against) said.push(errorText(step, view));
  if (step.other_shape)
    said.push([`The second trace has another shape, ${times(step.other_shape)}: not compared.`]);
  return said.length
    ? element(
        "ul",
        { class: "glance" },
        said.map((parts) => element("li", {}, parts)),
      )
    : "";
}

function channelName(index) {
  return index.length === 2 ? `head ${index[0]}, channel ${index[1]}` : `channel ${index[0]}`;
}

/** Say what the softmax scale is made of. */
function scaleText(model) {
  const { N, R } = model.letters;
  const plain = `The scale γ is ${number(model.softmax_scale)} = 1/√(${N} + ${R})`;
  const why =
    ": a dot of N + R products of unit size is about √(N + R) large, and the division brings it back to 1";
  if (model.mscale === null) return [`${plain}${why}.`];
  const mscale = `, times ${number(model.mscale)}² = (0.1 · ${number(model.yarn.mscale_all_dim)} · ln ${number(model.yarn.factor)} + 1)²`;
  return [
    `${plain}${mscale}. The first part: a dot of N + R products of unit size is about √(N + R) large. The second: ` +
      "YaRN sharpens attention a little where it stretches the context.",
  ];
}

/** Say how large the error is, and what FP8 has to do with it. */
function errorText(step, view) {
  const { relative, ratio } = step.against.measures;
  const other = otherName(view.page);
  const said = [
    `Relative error against ${other}: `,
    element("b", {}, relative === null ? "not finite" : percent(relative)),
  ];
  const without = (view.page.curves["without FP8"] || {})[step.name];
  const alone = (view.page.curves.alone || {})[step.name];
  if (without !== undefined) said.push(`; the same recipe without FP8: ${percent(without)}`);
  if (alone !== undefined) said.push(`; added by this step alone: ${percent(alone)}`);
  if (ratio !== null && Math.abs(ratio - 1) > 0.02 && relative > 0.02)
    said.push(`; best-fit ratio ${number(ratio)}`);
  return [...said, "."];
}

function otherName(page) {
  const about = page.about[1] || {};
  if (about.recipe && about.recipe !== page.about[0].recipe) return about.recipe;
  return about.model && about.model !== page.about[0].model ? about.model : "the second trace";
}

// The values of one step as pictures: sliders, heat maps of one trace or two, one token, where heads look.

/** Return the sliders over tokens, heads and sequences. */
function controls(step, view) {
  const { page } = view;
  const [, heads, keys] = step.picture.shape;
  const tokens = step.axes.some(([axis]) => axis === "T") ? page.sizes.T : keys * step.picture.every[0];
  const rows = [];
  if (tokens > 1)
    rows.push(
      slider("token", tokens - 1, view.state.token, tokenName(view.page, view.state.token, true), view),
    );
  if (heads > 1) rows.push(slider("head", heads - 1, view.state.head, String(view.state.head), view));
  if (page.sequences > 1)
    rows.push(slider("sequence", page.sequences - 1, view.state.sequence, String(view.state.sequence), view));
  return rows.length ? element("div", { class: "controls" }, rows) : "";
}

function slider(name, most, value, shown, view) {
  const id = `slider-${name}`;
  return element(
    "p",
    {},
    element("label", { for: id }, name),
    element("input", {
      type: "range",
      id,
      min: 0,
      max: most,
      step: 1,
      value: Math.min(value, most),
      "aria-valuetext": `${name} ${shown}`,
      input: (event) => view.set({ [name]: Number(event.target.value) }),
    }),
    element("span", { class: "shown" }, shown),
  );
}

/** Return a token's number, and its text where the trace has it. */
function tokenName(page, token, long = false) {
  const label = page.labels && page.labels[token] !== undefined ? page.labels[token] : null;
  const position =
    long && page.positions && page.positions[token] !== undefined && page.positions[token] !== token
      ? `, position ${page.positions[token]}`
      : "";
  return (label === null ? String(token) : long ? `${token} “${label}”` : `${token} ${label}`) + position;
}

/** Return the heat maps of the chosen head (or of all channels): one trace, or two and their difference. */
function pictures(step, view) {
  const mine = pictureOf(view.words, step.picture);
  const { limit } = step;
  const { beyond, nan } = step.numbers;
  const section = element("section", { class: "pictures" }, element("h3", {}, pictureTitle(step, view, mine)));
  if (!step.against) {
    section.append(
      heat(step, view, mine, limit, "", 340),
      colourKey(limit, beyond, hiddenCount(step, view), nan),
    );
    return section;
  }
  const error = pictureOf(view.words, step.against.error);
  const other = step.against.picture ? pictureOf(view.words, step.against.picture) : otherPicture(mine, error);
  const [a, b] = traceNames(view.page);
  const errors = { ...step.against.error.numbers, limit: step.against.error.limit };
  const maps = [
    heat(step, view, mine, limit, a, 264),
    heat(step, view, other, limit, b, 264),
    heat(step, view, error, errors.limit, `difference, ${a} minus ${b}, on a scale of its own`, 264),
  ];
  const keys = [
    colourKey(limit, beyond, hiddenCount(step, view), nan),
    colourKey(errors.limit, errors.beyond, 0, errors.nan),
  ];
  if (isScores(step))
    section.append(
      element("div", { class: "beside" }, maps[0], maps[1]),
      keys[0],
      element("div", { class: "beside" }, maps[2]),
      keys[1],
    );
  else section.append(maps[0], maps[1], keys[0], maps[2], keys[1]);
  return section;
}

function hiddenCount(step, view) {
  if (step.name === "pattern")
    return (view.page.steps.find((s) => s.name === "attn_masked").numbers || {}).hidden || 0;
  return step.numbers.hidden;
}

function traceNames(page) {
  const recipes = page.about.map((about) => about.recipe);
  return recipes[0] && recipes[1] && recipes[0] !== recipes[1] ? recipes : ["first trace", "second trace"];
}

function pictureTitle(step, view, picture) {
  const columns = step.axes.length === step.shape.length ? step.axes.at(-1)[1] : "columns";
  const head = picture.H > 1 ? `head ${Math.min(view.state.head, picture.H - 1)}, ` : "";
  const rows =
    step.axes.length === step.shape.length && step.axes.some(([axis]) => axis === "T")
      ? "query position"
      : "position";
  return `Values: ${head}${rows} down, ${columns} across`;
}

/** Return one heat map of the chosen head; a click on a row chooses that token. */
function heat(step, view, picture, limit, title, height) {
  const grid = headGrid(picture, view.state.sequence, view.state.head);
  const scores = isScores(step);
  const token = (row) => tokenName(view.page, row * grid.everyRow);
  const column = scores ? (c) => keyLabel(view.page, c) : String;
  return heatMap(grid, {
    limit,
    title,
    height,
    rowName: "token",
    columnName: scores ? "key" : "channel",
    named: scores,
    description: `Heat map of ${step.name} ${title}: ${grid.rows} tokens by ${grid.columns} columns, colours to plus and minus ${number(limit)}`,
    rowLabel: token,
    columnLabel: column,
    marked: Math.floor(view.state.token / grid.everyRow),
    read: (row, c, shown) =>
      `token ${token(row)}, ${spanName(view.page, scores, c, shown.every)}: ${cellText(shown.values[row * shown.columns + c])}`,
    choose: (row) => view.set({ token: row * grid.everyRow }),
  });
}

function isScores(step) {
  return step.axes.length === step.shape.length && step.axes.at(-1)[0] === "S";
}

function keyLabel(page, key) {
  const label = page.labels && page.sizes.S === page.sizes.T ? page.labels[key] : undefined;
  return label === undefined ? String(key) : label;
}

function spanName(page, scores, cell, every) {
  const first = cell * every;
  const name = scores ? "key" : "channel";
  if (every > 1) return `strongest of ${name}s ${first}–${first + every - 1}`;
  return scores && page.labels && page.sizes.S === page.sizes.T
    ? `key ${first} ${keyLabel(page, first)}`
    : `${name} ${first}`;
}

function cellText(value) {
  return value === -Infinity ? "hidden" : number(value, 3);
}

/** Return what the chosen token holds: all heads, or all channels. */
function tokenSection(step, view) {
  const picture = pictureOf(view.words, step.picture);
  const grid = tokenGrid(picture, view.state.sequence, view.state.token);
  const title = element("h3", {}, `Token ${tokenName(view.page, view.state.token, true)}`);
  const { limit } = step;
  if (picture.H === 1) {
    const name = "channel";
    return element("section", {}, title, profileChart(grid.values, grid.every, limit, name));
  }
  const scores = isScores(step);
  return element(
    "section",
    {},
    title,
    heatMap(grid, {
      limit,
      title: `all heads down, ${scores ? "keys" : "channels"} across`,
      height: 200,
      tallest: 14,
      rowName: "head",
      columnName: scores ? "key" : "channel",
      named: scores,
      description: `Heat map of ${step.name} at token ${view.state.token}: ${grid.rows} heads by ${grid.columns} columns`,
      rowLabel: (head) => `head ${head}`,
      columnLabel: scores ? (c) => keyLabel(view.page, c) : String,
      marked: Math.min(view.state.head, picture.H - 1),
      read: (head, c, shown) =>
        `head ${head}, ${spanName(view.page, scores, c, shown.every)}: ${cellText(shown.values[head * shown.columns + c])}`,
      choose: (head) => view.set({ head }),
    }),
  );
}

/** Return, for the pattern, where each head looks most from the chosen token. */
function gazeSection(step, view) {
  if (!step.top) return "";
  const [, H, T] = step.top.key.shape;
  const keys = wordsOf(view.words, step.top.key);
  const shares = toFloats(wordsOf(view.words, step.top.share));
  const rows = [];
  for (let head = 0; head < H; head++) {
    const at = (view.state.sequence * H + head) * T + Math.min(view.state.token, T - 1);
    const key = keys[at];
    const back = view.page.sizes.S === view.page.sizes.T ? view.state.token - key : null;
    const where = back === null ? "" : back === 0 ? "itself" : back > 0 ? `${back} back` : `${-back} ahead`;
    rows.push([
      String(head),
      tokenName({ ...view.page, positions: null }, key, true),
      where,
      percent(shares[at]),
    ]);
  }
  return element(
    "section",
    { class: "gaze" },
    element("h3", {}, `Where each head looks most from token ${tokenName(view.page, view.state.token, true)}`),
    table("Strongest key of each head", ["#head", "key", "where", "#share"], rows),
  );
}

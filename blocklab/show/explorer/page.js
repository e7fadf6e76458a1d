// The page: what is chosen, the keys, and drawing again when something changes.

/** Start: read what was given, draw, listen. */
async function start() {
  const page = JSON.parse(document.getElementById("document").textContent);
  const words = await readWords(document.getElementById("arrays").textContent.trim());
  page.sequences = Math.min(
    page.sizes.B,
    ...page.steps.filter(hasBatch(page)).map((step) => step.picture.sequences),
  );
  const frame = document.getElementById("diagram");
  const panel = document.getElementById("panel");
  const state = { step: firstStep(page), token: Math.min(7, page.sizes.T - 1), head: 0, sequence: 0 };
  const view = {
    page,
    words,
    state,
    go: (step) => {
      state.step = step;
      show(view, frame, panel);
    },
    set: (changes) => {
      Object.assign(state, changes);
      showValues(view, panel);
    },
  };
  drawDiagram(frame, page, (step) => {
    view.go(step);
    document.getElementById(`node-${step}`).focus({ preventScroll: true });
  });
  document.getElementById("summary").append(...summary(page));
  document.getElementById("about").append(...aboutPage(page));
  document.addEventListener("keydown", (event) => onKey(event, view));
  window.addEventListener("hashchange", () => {
    readHash(view);
    show(view, frame, panel);
  });
  listenForRoom(panel);
  readHash(view);
  show(view, frame, panel);
  document.documentElement.dataset.ready = "true";
}

/** Return whether the picture of a step has a sequence for each of the batch, or for the first ones. */
function hasBatch(page) {
  return (step) => step.picture && step.shape.length > 2 && step.shape[0] === page.sizes.B;
}

function firstStep(page) {
  return (page.steps.find((step) => step.numbers) || page.steps[0]).name;
}

/** Show the chosen step in the diagram and the panel. */
function show(view, frame, panel) {
  markNode(frame, view.state.step);
  drawPanel(panel, view);
  panel.scrollTop = 0;
  const step = view.page.steps.find((s) => s.name === view.state.step);
  document.getElementById("announce").textContent = `${step.name}: ${step.note}`;
  writeHash(view.state);
}

/** Show another token or head of the same step; a slider that has the focus keeps it. */
function showValues(view, panel) {
  const focused =
    document.activeElement && panel.contains(document.activeElement) ? document.activeElement.id : "";
  const place = panel.scrollTop;
  drawPanel(panel, view);
  panel.scrollTop = place;
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  writeHash(view.state);
}

/** Arrows go to other steps and tokens, brackets to other heads, unless a control wants the key for itself. */
function onKey(event, view) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const tag = event.target.tagName;
  if (tag === "INPUT" && event.key.startsWith("Arrow")) return;
  const names = view.page.steps.map((step) => step.name);
  const place = names.indexOf(view.state.step);
  const step = {
    ArrowUp: place - 1,
    ArrowDown: place + 1,
    k: place - 1,
    j: place + 1,
    Home: 0,
    End: names.length - 1,
  }[event.key];
  const token = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const head = { "[": -1, "]": 1 }[event.key];
  const { T, H, B } = view.page.sizes;
  const move = (name, by, size) => view.set({ [name]: Math.min(Math.max(view.state[name] + by, 0), size - 1) });
  if (step !== undefined) goByKey(names[Math.min(Math.max(step, 0), names.length - 1)], view);
  else if (token) move("token", token, T);
  else if (head) move("head", head, H);
  else return;
  event.preventDefault();
}

function goByKey(name, view) {
  view.go(name);
  const node = document.getElementById(`node-${name}`);
  node.focus({ preventScroll: true });
  node.scrollIntoView({ block: "nearest" });
}

/** The address holds what is chosen, so that a link or a reload leads to it. */
function writeHash({ step, token, head, sequence }) {
  const parts = [step, `token=${token}`, `head=${head}`, ...(sequence ? [`sequence=${sequence}`] : [])];
  history.replaceState(null, "", `#${parts.join("&")}`);
}

function readHash({ page, state }) {
  const [step, ...rest] = location.hash.slice(1).split("&");
  if (page.steps.some((s) => s.name === step)) state.step = step;
  const most = { token: page.sizes.T, head: page.sizes.H, sequence: page.sequences };
  for (const part of rest) {
    const [name, value] = part.split("=");
    if (Object.hasOwn(most, name) && /^\d{1,6}$/.test(value))
      state[name] = Math.min(Number(value), most[name] - 1);
  }
}

/** Draw the pictures again when the panel's width, the colours or the medium change. */
function listenForRoom(panel) {
  let width = 0;
  new ResizeObserver(() => {
    if (panel.clientWidth === width) return;
    width = panel.clientWidth;
    redraw(panel);
  }).observe(panel);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(panel));
  const paper = (on) => {
    document.documentElement.classList.toggle("paper", on);
    redraw(panel);
  };
  window.addEventListener("beforeprint", () => paper(true));
  window.addEventListener("afterprint", () => paper(false));
}

/** Return one line about the run. */
function summary(page) {
  const { model, sizes, about } = page;
  const parts = [
    about[0].model,
    model
      ? Object.entries(model.letters)
          .map(([letter, size]) => `${letter} ${count(size)}`)
          .join(", ")
      : null,
    model ? `${count(model.parameters.total)} parameters` : null,
    `${sizes.B > 1 ? `${count(sizes.B)} sequences of ` : ""}${count(sizes.T)} token${sizes.T > 1 ? "s" : ""}`,
    about[0].recipe ? `recipe ${about[0].recipe}` : null,
    about.length > 1 ? `against ${otherName(page)}` : null,
  ];
  return [parts.filter(Boolean).join(" · ")];
}

/** Return what the traces say about themselves, and how much of them the page holds. */
function aboutPage(page) {
  const reduced = page.steps.filter(
    (s) =>
      s.picture &&
      (s.picture.every[0] > 1 ||
        s.picture.every[1] > 1 ||
        (s.picture.sequences < (s.shape[0] || 1) && s.shape.length > 2)),
  );
  const how = (s) =>
    `${s.name} (${[
      s.picture.every[0] > 1 ? `${s.picture.every[0]} tokens` : "",
      s.picture.every[1] > 1 ? `${s.picture.every[1]} ${isScores(s) ? "keys" : "channels"}` : "",
      s.shape.length > 2 && s.picture.sequences < s.shape[0]
        ? `the first ${s.picture.sequences} of ${s.shape[0]} sequences`
        : "",
    ]
      .filter(Boolean)
      .join(" × ")})`;
  const said = [
    element(
      "p",
      {},
      reduced.length
        ? "The trace is larger than this page: in its pictures one cell stands for several values and shows the strongest."
        : "Every value of the trace is in this page.",
      " Pictures are rounded to bfloat16, about three digits.",
      " Statistics, histograms, errors and the loudest channels are exact and from all values.",
    ),
  ];
  if (reduced.length)
    said.push(
      element(
        "details",
        {},
        element("summary", {}, "How many values one cell stands for"),
        element("p", {}, `${reduced.map(how).join(", ")}.`),
      ),
    );
  page.about.forEach((about, i) =>
    said.push(
      element(
        "details",
        {},
        element(
          "summary",
          {},
          page.about.length > 1 ? `About the ${["first", "second"][i]} trace` : "About this trace",
        ),
        element(
          "dl",
          { class: "facts" },
          Object.entries(about).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
        ),
      ),
    ),
  );
  if (page.not_shown.length)
    said.push(element("p", {}, `Also in the trace, and not shown: ${page.not_shown.join(", ")}.`));
  if (page.only_against.length)
    said.push(element("p", {}, `Only in the second trace: ${page.only_against.join(", ")}.`));
  return said;
}

start().catch((error) => {
  const failure = document.getElementById("failure");
  failure.hidden = false;
  failure.textContent = `This page could not be drawn (${error.message}). It needs a browser from 2023 or later.`;
  throw error;
});

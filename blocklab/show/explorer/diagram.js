// The block as a diagram: the residual stream on the left, attention and MLP beside it, data flowing down.

const GRID = { column: 124, row: 60, node: 114, tall: 42, x: 62, y: 4 };
const CORNER = 6;

/** Return where a node's box is: middle x, top y, width, height. */
function boxOf(node) {
  const width = GRID.node + (node.width - 1) * GRID.column;
  return { x: GRID.x + node.column * GRID.column, y: GRID.y + node.row * GRID.row, width, height: GRID.tall };
}

/** Draw the diagram; `choose(step)` is called for the step that is clicked. */
function drawDiagram(frame, page, choose) {
  const { nodes, edges, groups } = page.diagram;
  const boxes = Object.fromEntries(nodes.map((node) => [node.step, boxOf(node)]));
  const height = GRID.y + (Math.max(...nodes.map((node) => node.row)) + 1) * GRID.row;
  frame.setAttribute("viewBox", `0 0 ${GRID.x + 5.5 * GRID.column + 4} ${height - 10}`);
  frame.append(
    svg(
      "defs",
      {},
      svg(
        "marker",
        {
          id: "arrow",
          viewBox: "0 0 6 6",
          refX: 5.2,
          refY: 3,
          markerWidth: 7,
          markerHeight: 7,
          markerUnits: "userSpaceOnUse",
          orient: "auto",
        },
        svg("path", { d: "M0 0.5L5.5 3L0 5.5z", class: "arrow" }),
      ),
    ),
  );
  frame.append(...groups.map((group) => groupBox(group, page.model)));
  frame.append(
    ...edges
      .filter((edge) => boxes[edge.from] && boxes[edge.to])
      .map((edge) =>
        svg("path", {
          d: edgePath(edge, boxes),
          class: "edge",
          "marker-end": "url(#arrow)",
          "data-from": edge.from,
          "data-to": edge.to,
        }),
      ),
  );
  frame.append(...page.steps.map((step) => nodeBox(step, boxes[step.name], choose)));
}

/** Return the frame around attention or MLP, with its parameters. */
function groupBox(group, model) {
  const [first, last] = group.rows;
  const y = GRID.y + first * GRID.row - 12;
  const x = GRID.x + 0.5 * GRID.column + 2;
  const height = (last - first) * GRID.row + GRID.tall + 24;
  const made = svg(
    "g",
    { "aria-hidden": "true" },
    svg("rect", { x, y, width: 5 * GRID.column - 4, height, rx: 10, class: "group" }),
    svg(
      "text",
      { x: x + 14, y: y + height - 32, class: "caption" },
      group.part === "mlp" ? "MLP" : "Attention",
    ),
  );
  if (model) {
    const size = model.parameters[group.part];
    made.append(
      svg(
        "text",
        { x: x + 14, y: y + height - 15, class: "caption small" },
        `${count(size)} parameters, ${((100 * size) / model.parameters.total).toFixed(1)} %`,
      ),
    );
  }
  return made;
}

/** Return the path of an edge: straight down where the boxes overlap, else with one bend. */
function edgePath(edge, boxes) {
  const from = boxes[edge.from];
  const to = boxes[edge.to];
  const stream = boxes.resid_pre.x;
  if (from.x === stream && to.x !== stream) {
    const y = to.y + to.height / 2;
    const bend = `V${y - CORNER}Q${stream} ${y} ${stream + CORNER} ${y}`;
    return `M${stream} ${from.y + from.height}${bend}H${to.x - to.width / 2 - 2}`;
  }
  if (to.x === stream && from.x !== stream) {
    const y = to.y + to.height / 2;
    const bend = `V${y - CORNER}Q${from.x} ${y} ${from.x - CORNER} ${y}`;
    return `M${from.x} ${from.y + from.height}${bend}H${to.x + to.width / 2 + 2}`;
  }
  return downPath(from, to, edge.column === null ? null : GRID.x + edge.column * GRID.column);
}

function downPath(from, to, column) {
  const reach = (box) => [box.x - box.width / 2 + 10, box.x + box.width / 2 - 10];
  const [a, b] = [reach(from), reach(to)];
  const left = Math.max(a[0], b[0]);
  const right = Math.min(a[1], b[1]);
  const start = from.y + from.height;
  if (column !== null || left <= right) return `M${column ?? (left + right) / 2} ${start}V${to.y - 2}`;
  const clamp = (x, [low, high]) => Math.min(Math.max(x, low), high);
  const x0 = clamp(to.x, a);
  const x1 = clamp(x0, b);
  const y = to.y - 10;
  const side = Math.sign(x1 - x0);
  const first = `V${y - CORNER}Q${x0} ${y} ${x0 + side * CORNER} ${y}`;
  const second = `H${x1 - side * CORNER}Q${x1} ${y} ${x1} ${to.y - 2}`;
  return `M${x0} ${start}${first}${second}`;
}

/** Return one step's box: its name, its shape, its parameters. */
function nodeBox(step, box, choose) {
  const size = step.weight && step.weight.shape.length ? step.weight.shape.reduce((a, b) => a * b, 1) : 0;
  const shape = step.shape
    ? times(step.shape.length > 1 && step.shape[0] === 1 ? step.shape.slice(1) : step.shape)
    : "not in this trace";
  const second = svg("text", { x: box.x, y: box.y + 33, class: "shape" }, shape);
  if (size && step.weight.shape.length > 1)
    second.append(svg("tspan", { class: "parameters", dx: 7 }, compact(size)));
  return svg(
    "g",
    {
      class: `node${step.shape ? "" : " absent"}${step.weight ? " learned" : ""}`,
      role: "option",
      id: `node-${step.name}`,
      tabindex: -1,
      "aria-selected": "false",
      "aria-label": `${step.name}: ${step.note}; ${shape}${size ? `; ${count(size)} parameters` : ""}`,
      click: () => choose(step.name),
    },
    svg("rect", { x: box.x - box.width / 2, y: box.y, width: box.width, height: box.height, rx: 5 }),
    svg("text", { x: box.x, y: box.y + 17, class: "name" }, step.name),
    second,
  );
}

/** Mark the selected step and what leads to it and away from it. */
function markNode(frame, name) {
  for (const node of frame.querySelectorAll(".node")) {
    const selected = node.id === `node-${name}`;
    node.setAttribute("aria-selected", String(selected));
    node.setAttribute("tabindex", selected ? "0" : "-1");
    if (selected) reveal(node, frame.parentElement);
  }
  for (const edge of frame.querySelectorAll(".edge")) {
    edge.classList.toggle("lit", edge.dataset.from === name || edge.dataset.to === name);
  }
}

/** Scroll the diagram, where it has less room than it needs, until a step is in its middle. */
function reveal(node, room) {
  const [box, frame] = [node.getBoundingClientRect(), room.getBoundingClientRect()];
  if (box.left < frame.left || box.right > frame.right)
    room.scrollLeft += box.x - frame.x - (frame.width - box.width) / 2;
  if (box.top < frame.top || box.bottom > frame.bottom)
    room.scrollTop += box.y - frame.y - (frame.height - box.height) / 2;
}

// The error of every step as a chart.

const LINES = {
  arrives: ["arrives", "what arrives: all errors so far"],
  alone: ["alone", "what this step alone adds, from the other run's values"],
  "without FP8": ["without", "what arrives without FP8, all else equal"],
};

/** Return the relative error of every step on a logarithmic scale; choosing a step goes there. */
function errorChart(curves, steps, current, choose) {
  const height = 250;
  const bottom = 88;
  const all = Object.values(curves)
    .flatMap((curve) => Object.values(curve))
    .filter((e) => e > 0);
  const made = chart(height, "Relative error of every step; the numbers are in the table below", "errors");
  if (!all.length) return made;
  const top = Math.ceil(Math.log10(Math.max(...all)) + 0.05);
  const low = Math.max(Math.floor(Math.log10(Math.min(...all))), top - 8);
  const floor = height - bottom;
  const x = (i) => PLOT.left + ((i + 0.5) / steps.length) * (PLOT.width - PLOT.left - PLOT.right);
  const y = (e) => floor - ((Math.max(Math.log10(e), low) - low) / (top - low)) * (floor - PLOT.top);
  for (let power = low; power <= top; power++) {
    made.append(
      svg("line", {
        x1: PLOT.left,
        x2: PLOT.width - PLOT.right,
        y1: y(10 ** power),
        y2: y(10 ** power),
        class: "grid",
      }),
    );
    made.append(
      text(
        PLOT.left - 6,
        y(10 ** power) + 4,
        power >= -2 ? `${100 * 10 ** power} %` : `10${superscript(power)}`,
        "end",
      ),
    );
  }
  const here = steps.indexOf(current);
  if (here >= 0) made.append(svg("line", { x1: x(here), x2: x(here), y1: PLOT.top, y2: floor, class: "here" }));
  for (const [name, curve] of Object.entries(curves)) made.append(...errorLine(name, curve, steps, x, y));
  steps.forEach((step, i) => {
    const label = svg(
      "text",
      {
        transform: `translate(${x(i) + 3} ${floor + 10}) rotate(-60)`,
        "text-anchor": "end",
        class: i === here ? "tick current" : "tick",
      },
      step,
    );
    const wide = (PLOT.width - PLOT.left - PLOT.right) / steps.length;
    made.append(
      label,
      svg(
        "rect",
        { x: x(i) - wide / 2, y: 0, width: wide, height, class: "target", click: () => choose(step) },
        svg("title", {}, step),
      ),
    );
  });
  return made;
}

function errorLine(name, curve, steps, x, y) {
  const className = LINES[name] ? LINES[name][0] : "arrives";
  const points = steps.map((step, i) => [step, i]).filter(([step]) => curve[step] > 0);
  const line = svg("polyline", {
    points: points.map(([step, i]) => `${x(i)},${y(curve[step])}`).join(" "),
    class: `line ${className}`,
  });
  const dots = points.map(([step, i]) =>
    svg("circle", {
      cx: x(i),
      cy: y(curve[step]),
      r: className === "alone" ? 3 : 2.2,
      class: `dot ${className}`,
    }),
  );
  return className === "alone" ? dots : [line, ...dots];
}

function superscript(n) {
  return String(n)
    .replace("-", "⁻")
    .replace(/[0-9]/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
}

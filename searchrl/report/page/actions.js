// What a policy that chooses by number did in this run: shares of its actions, and the least likely one.
"use strict";

SEARCHRL.actions = (() => {
  const { el, svg, number, percent } = SEARCHRL;
  const ALL = "action/";
  const FREE = "free_action/";
  const LEAST = "least_action_p";
  const ENDING = "ending_choices";
  const ORDER = ["before", "train", "during", "after"];
  const LABELS = { train: "last training step", during: "last short evaluation" };
  const SIZE = { width: 640, height: 240, left: 44, right: 10, top: 8, bottom: 22 };

  // In a mixture each task has them as well, below its name: TASK/action/NAME.
  const isOwn = (name) => `/${name}`.includes(`/${ALL}`) || `/${name}`.includes(`/${FREE}`) ||
    [LEAST, ENDING].includes(name.split("/").pop());
  const colour = (place, total) => `hsl(${Math.round((360 * place) / total)} 55% ${place % 2 ? 42 : 62}%)`;

  function draw(run) {
    const names = Object.keys(run.curves).filter((name) => name.startsWith(ALL)).map((name) => name.slice(ALL.length));
    if (!names.length) return null;
    return el("section", { class: "box", id: "actions" }, el("h2", {}, "Actions"),
      least(run), stack(run, names), table(run, names));
  }

  // The line that says that nothing collapsed, or that something did.
  function least(run) {
    const points = Object.entries(run.curves[LEAST] || {}).flatMap(([phase, list]) => list.map((point) => [...point, phase]));
    if (!points.length) return el("p", {}, "The environment left no choice: one action was legal each time.");
    const low = points.reduce((a, b) => (b[1] < a[1] ? b : a));
    return el("p", {}, "The smallest probability that a legal action had in this run is ", el("b", {}, number(low[1])),
      ` (step ${low[0]}, ${low[4]}). `, low[1] > 0 ? "So every action could still be drawn." : "That action could not be drawn any more.");
  }

  function stack(run, names) {
    const curves = names.map((name) => (run.curves[ALL + name] || {}).train || []);
    const steps = curves[0].map((point) => point[0]);
    if (steps.length < 2) return null;
    const { width, height, left, right, top, bottom } = SIZE;
    const x = (place) => left + ((width - left - right) * place) / (steps.length - 1);
    const y = (share) => height - bottom - share * (height - bottom - top);
    const last = names.map((name, place) => `${name} ${percent(curves[place][steps.length - 1][1])}`).join(", ");
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Share of each action in training. In the last step: ${last}` });
    let under = steps.map(() => 0);
    names.forEach((name, place) => {
      const over = under.map((low, at) => low + curves[place][at][1]);
      const edge = (values) => values.map((value, at) => `${x(at).toFixed(1)},${y(Math.min(1, value)).toFixed(1)}`);
      drawing.append(svg("polygon", { points: [...edge(over), ...edge(under).reverse()].join(" "), fill: colour(place, names.length), class: "share" },
        svg("title", {}, name)));
      under = over;
    });
    for (const share of [0, 0.5, 1]) {
      drawing.append(svg("text", { x: left - 5, y: y(share) + 4, "text-anchor": "end" }, percent(share).replace(".0", "")));
    }
    drawing.append(svg("text", { x: left, y: height - 6 }, `step ${steps[0]}`),
      svg("text", { x: width - right, y: height - 6, "text-anchor": "end" }, `step ${steps[steps.length - 1]}`));
    const legend = el("ul", {}, names.map((name, place) => el("li", {}, mark(place, names.length), ` ${name}`)).reverse());
    return el("figure", { class: "stack" }, el("figcaption", {}, "Share of each action among the choices of a training step"),
      el("div", { class: "with-legend" }, drawing, legend));
  }

  function mark(place, total) {
    return svg("svg", { viewBox: "0 0 10 10", class: "mark", "aria-hidden": "true" }, svg("rect", { width: 10, height: 10, fill: colour(place, total) }));
  }

  function table(run, names) {
    const last = (name, phase) => {
      const list = (run.curves[name] || {})[phase] || [];
      return list.length ? list[list.length - 1][1] : null;
    };
    const measured = Object.keys(run.curves[ALL + names[0]]).sort((a, b) => ORDER.indexOf(a) - ORDER.indexOf(b));
    const columns = measured.map((phase) => [LABELS[phase] || phase, (name) => last(name, phase)]);
    const row = (label, read) => el("tr", {}, el("th", { scope: "row" }, label), columns.map((column) => el("td", { class: "n" }, read(column[1]))));
    const shares = (name) => row(name, (value) => `${percent(value(ALL + name))} (${percent(value(FREE + name))})`);
    return el("div", {}, el("p", { class: "note" }, "Share among all choices and, in brackets, among those in which another action was legal. Evaluations take the most probable action, unless they have a temperature."),
      SEARCHRL.scroll("Shares of actions", el("table", {}, el("thead", {}, el("tr", {}, ["action", ...columns.map(([name]) => name)].map((text) => el("th", { scope: "col" }, text)))),
        el("tbody", {}, names.map(shares),
          row("choices that ended their episode", (value) => `(${percent(value(ENDING))})`),
          row("least likely legal action", (value) => number(value(LEAST)))))));
  }

  return { draw, isOwn };
})();

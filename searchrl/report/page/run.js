// The first page: what the run is, whether it helped, its curves, what alarms said.
"use strict";

SEARCHRL.views.run = (() => {
  const { el, svg, number, signed, table, given } = SEARCHRL;
  const KEY = [
    "reward", "env", "format", "em", "cover_em", "f1", "searched", "searches", "support_recall", "passive",
    "entropy", "kl", "clip_frac", "grad_norm", "loss", "mismatch", "model_tokens", "dead_groups",
    "unscored", "failed", "turns", "least_action_p", "episodes_per_s",
  ];
  const WIDTH = 320;
  const HEIGHT = 140;
  const PAD = { left: 44, right: 10, top: 10, bottom: 22 };

  function show(main) {
    const { runs, ...study } = given.get("run");
    main.replaceChildren(...together(runs, study));
    runs.forEach((run, place) => {
      const parts = describe(run, place, runs.length);
      main.append(...(runs.length > 2 ? [el("details", {}, el("summary", {}, run.name), parts)] : parts));
    });
  }

  // Many runs: a table of their arms, and each figure with a band over the runs of an arm.
  function together(runs, { heads, table: rows, notes, charts }) {
    if (!charts.length) return [];
    const cells = ([name, texts]) => el("tr", {}, el("th", { scope: "row" }, name), texts.map((text) => el("td", { class: "n" }, text)));
    const pictures = charts.map((name) => el("figure", {}, el("img", { alt: `${name}, by sampled tokens`, src: `data/${name}.svg` })));
    return [el("h1", { tabindex: "-1" }, `${runs.length} runs together`),
      el("section", { class: "box", id: "together" },
        rows ? table("Arms", ["arm", ...heads], Object.entries(rows).map(cells)) : null,
        (notes || []).map((text) => el("p", { class: "note" }, text)),
        el("p", { class: "note" }, "Lines are means over the runs of an arm, bands their 95 % intervals over the seeds."),
        el("div", { class: "charts" }, pictures))];
  }

  function describe(run, place, total) {
    const name = total > 1 ? `${place ? "Compared with" : "Run"}: ${run.name}` : `Run ${run.name}`;
    return [
      el(total > 1 ? "h2" : "h1", { tabindex: total > 1 ? null : "-1" }, name),
      faults(run),
      place ? null : questions(),
      alarms(run, place),
      place ? null : SEARCHRL.lastGroups?.(),
      both(run),
      tree(run),
      curves(run),
      settings(run),
    ].flat().filter(Boolean);
  }

  // Damage is loud; that an older version wrote no checksums is not.
  function faults(run) {
    if (!run.faults.length) return null;
    const isLoud = run.faults.some((text) => text.includes("is damaged"));
    return el("details", { class: "box", open: isLoud },
      el("summary", { class: isLoud ? "minus" : "" }, `Notes on the files of this run (${run.faults.length})`),
      el("ul", {}, run.faults.map((text) => el("li", {}, text))));
  }

  function questions() {
    const links = SEARCHRL.QUESTIONS.map(([text, target]) => el("li", {}, el("a", { href: target }, text)));
    return el("details", { class: "box questions", open: true },
      el("summary", {}, "Ten questions that this page answers"), el("ol", {}, links));
  }

  function alarms(run, place) {
    const box = el("section", { class: "box", id: place ? null : "alarms" }, el("h2", {}, "Alarms"));
    if (!run.alarms.length) {
      box.append(el("p", {}, "No alarm sounded."));
      return box;
    }
    for (const alarm of run.alarms) {
      box.append(el("article", { class: `alarm ${alarm.severity}` },
        el("h3", {}, `${alarm.alarm} (${alarm.severity}), step ${alarm.step}`),
        el("p", {}, el("strong", {}, alarm.what)),
        el("p", {}, `Why it matters: ${alarm.why}`),
        el("p", {}, "What to try:"),
        el("ul", {}, (alarm.tries || []).map((text) => el("li", {}, text))),
        el("p", {}, `The run did: ${alarm.action}. It began at step ${alarm.since}. `,
          el("a", { href: `#/rollouts?run=${place}&phase=train&from=${alarm.since}&to=${alarm.step}` },
            "The rollouts of these steps"))));
    }
    return box;
  }

  function both(run) {
    if (!run.before && !run.after) {
      return el("section", { class: "box" }, el("h2", {}, "Before and after"),
        el("p", {}, "This run recorded no evaluation before or after training."));
    }
    const names = new Set([...Object.keys(run.before || {}), ...Object.keys(run.after || {})]);
    const rows = [...names].map((name) => {
      const before = (run.before || {})[name];
      const after = (run.after || {})[name];
      const change = before && after ? after.value - before.value : null;
      return el("tr", {}, el("th", { scope: "row" }, run.labels[name] || name), cell(before), cell(after),
        el("td", { class: "n" }, signed(change)));
    });
    return el("section", { class: "box", id: "before-after" },
      el("h2", {}, "Before and after"),
      el("p", { class: "note" }, "Value, its 95 % interval, and the number of episodes behind it. ",
        el("a", { href: "#/compare" }, "Compare the two task by task.")),
      changes(run),
      table("Before and after", ["metric", "before", "after", "change"], rows));
  }

  // Of several environments: whether one was forgotten.
  function changes(run) {
    if (!run.changes.length) return null;
    const rows = run.changes.map((one) => el("tr", {}, el("th", { scope: "row" }, one.env), el("td", {}, one.figure),
      cell(one.before), cell(one.after), cell(one.change),
      el("td", { class: { forgot: "minus", gained: "plus" }[one.verdict] || "" }, one.verdict)));
    const heads = ["environment", "figure", "before", "after", "change, task by task", "verdict"];
    return table("What each environment gained or lost", heads, rows, { id: "changes" });
  }

  // Each node below the one that it came from, such as the candidates of an instruction.
  function tree(run) {
    if (!run.tree.length) return null;
    const root = el("ul", { class: "tree" });
    const items = new Map();
    for (const node of run.tree) {
      const figures = Object.entries(node.figures).map(([name, one]) => [el("span", { class: "dim" }, ` ${name} `), value(one)]);
      const item = el("li", {}, el("details", {}, el("summary", {}, node.label, figures), el("pre", { tabindex: "0" }, node.text)));
      const above = items.get(node.parent);
      if (above && !above.querySelector("ul")) above.append(el("ul"));
      (above ? above.querySelector("ul") : root).append(item);
      items.set(node.id, item);
    }
    return el("section", { class: "box", id: "tree" }, el("h2", {}, "Candidates"), root);
  }

  function cell(metric) {
    return el("td", { class: "n" }, metric ? value(metric) : "—");
  }

  function value(metric) {
    const band = metric.low === undefined ? "" : ` [${number(metric.low)}, ${number(metric.high)}]`;
    return [el("b", {}, number(metric.value)), el("span", { class: "dim" }, `${band} n=${metric.n}`)];
  }

  function curves(run) {
    const all = Object.keys(run.curves);
    const first = [...new Set([...run.components, ...KEY])].filter((name) => all.includes(name));
    const grid = el("div", { class: "charts" });
    const fill = (names) => grid.replaceChildren(...names.map((name) => chart(run.labels[name] || name, run.curves[name])));
    const rest = [...first, ...all.filter((name) => !first.includes(name))];
    const choice = el("input", { type: "checkbox", change: () => fill(choice.checked ? rest : first) });
    fill(first);
    return el("section", { class: "box", id: "curves" }, el("h2", {}, "Curves"),
      el("p", { class: "note" },
        el("span", { class: "key line" }), " training steps, with their 95 % band  ",
        el("span", { class: "key dot" }), " evaluations (before, during, after), with theirs"),
      all.length ? null : el("p", {}, "No metrics were recorded."),
      all.length > first.length ? el("label", {}, choice, ` show all ${all.length} metrics`) : null, grid);
  }

  function chart(name, phases) {
    const train = phases.train || [];
    const points = Object.entries(phases).filter(([phase]) => phase !== "train")
      .flatMap(([phase, list]) => list.map((point) => [...point, phase]));
    const every = [...train, ...points];
    const steps = every.map((point) => point[0]);
    // What never changed is a line; its intervals would only fill the picture.
    const isFlat = every.every((point) => point[1] === every[0][1]);
    const values = every.flatMap((point) => (isFlat ? [point[1]] : point.slice(1, 4))).filter((v) => v !== null);
    const x = scale(Math.min(...steps), Math.max(...steps), PAD.left, WIDTH - PAD.right);
    const y = scale(Math.min(...values), Math.max(...values), HEIGHT - PAD.bottom, PAD.top);
    const last = every.reduce((a, b) => (b[0] >= a[0] ? b : a));
    const text = `${name}: ${number(every[0][1])} at step ${every[0][0]}, ${number(last[1])} at step ${last[0]}`;
    const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": text });
    for (const value of [y.low, y.high]) {
      drawing.append(
        svg("line", { x1: PAD.left, x2: WIDTH - PAD.right, y1: y(value), y2: y(value), class: "grid" }),
        svg("text", { x: PAD.left - 5, y: y(value) + 4, "text-anchor": "end" }, number(value)));
    }
    for (const [step, anchor] of [[x.low, "start"], [x.high, "end"]]) {
      drawing.append(svg("text", { x: x(step), y: HEIGHT - 6, "text-anchor": anchor }, `step ${step}`));
    }
    const band = train.filter((point) => !isFlat && point[2] !== null && point[3] !== null);
    if (band.length > 1) {
      const up = band.map((point) => `${x(point[0])},${y(point[3])}`);
      const down = band.map((point) => `${x(point[0])},${y(point[2])}`).reverse();
      drawing.append(svg("polygon", { points: [...up, ...down].join(" "), class: "band" }));
    }
    drawing.append(svg("polyline", { points: train.map((p) => `${x(p[0])},${y(p[1])}`).join(" "), class: "line" }));
    for (const [step, value, low, high, phase] of points) {
      if (!isFlat && low !== null && high !== null) {
        drawing.append(svg("line", { x1: x(step), x2: x(step), y1: y(low), y2: y(high), class: "whisker" }));
      }
      drawing.append(svg("circle", { cx: x(step), cy: y(value), r: 3, class: "dot" },
        svg("title", {}, `${phase}, step ${step}: ${number(value)}`)));
    }
    return el("figure", {}, el("figcaption", {}, el("b", {}, name), ` ${number(last[1])}`), drawing);
  }

  function scale(low, high, from, to) {
    const span = high - low || 1;
    const place = (value) => Math.round(10 * (from + ((value - low) / span) * (to - from))) / 10;
    return Object.assign(place, { low, high });
  }

  function settings(run) {
    const facts = run.provenance;
    const rows = [...run.settings];
    for (const name of ["started", "duration_s", "device", "trainable_parameters", "parameters", "fingerprint"]) {
      if (facts[name] !== undefined && facts[name] !== null) rows.push([name, facts[name]]);
    }
    if (facts.commit) rows.push(["commit", facts.commit.searchrl || "none"]);
    if (Array.isArray(facts.command)) rows.push(["command", facts.command.join(" ")]);
    for (const plugin of facts.plugins || []) {
      rows.push([`plugin ${plugin.plugin}`, `${plugin.version || ""} ${plugin.file || ""} sha256 ${plugin.sha256 || "?"}`]);
    }
    return el("section", { class: "box" }, el("h2", {}, "What was run"),
      el("dl", {}, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, typeof value === "number" ? number(value) : String(value))])),
      el("details", {}, el("summary", {}, "The whole config"), el("pre", { tabindex: "0" }, run.config)),
      el("details", {}, el("summary", {}, "The whole provenance"),
        el("pre", { tabindex: "0" }, JSON.stringify(facts, null, 2))));
  }

  return { show, title: () => "Run" };
})();

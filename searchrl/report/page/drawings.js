// What protocols, environments and rewards draw of a rollout: texts, tables and graphs.
"use strict";

SEARCHRL.drawings = (() => {
  const { el, svg, number } = SEARCHRL;
  const MOST = 200;
  const BOX = { height: 34, gapX: 50, gapY: 16 };
  // A box is as wide as the longest label of its graph needs, within limits; what is cut is in the tooltip.
  const LETTERS = { least: 22, most: 48, width: 6.1 };
  const INDENT = 8;

  function draw(drawings) {
    if (!drawings.length) return el("div", { hidden: true });
    return el("section", { class: "box" }, el("h2", {}, "Drawings"), drawings.map((one) => el("figure", {},
      el("figcaption", {}, el("b", {}, one.title), el("span", { class: "dim" }, ` drawn by ${one.by}`)), body(one))));
  }

  function body(one) {
    try {
      return figure(one);
    } catch (error) {
      return el("p", {}, `This drawing cannot be shown: ${error.message}`);
    }
  }

  function figure(one) {
    if (one.kind === "text") return el("pre", { tabindex: "0" }, one.text);
    if (one.kind === "table") return table(one);
    if (one.kind === "graph") return graph(one);
    return el("p", {}, `This report knows no drawing of the kind '${one.kind}'.`);
  }

  function table(one) {
    return SEARCHRL.table(one.title, one.columns, one.rows.map((row) => el("tr", {}, row.map((value) =>
      el("td", { class: typeof value === "number" ? "n" : "" }, typeof value === "number" ? number(value) : value)))));
  }

  // Left to right: a node stands one column behind the farthest of those that lead to it.
  function graph(one) {
    const names = Object.keys(one.nodes);
    if (names.length > MOST) throw new Error(`it has ${names.length} nodes, more than ${MOST}`);
    const letters = Math.min(LETTERS.most, Math.max(LETTERS.least, ...names.map((name) => one.nodes[name].length)));
    const box = { ...BOX, width: Math.ceil(2 * INDENT + letters * LETTERS.width) };
    const level = new Map(names.map((name) => [name, 0]));
    for (let round = 0; round < names.length; round += 1) {
      for (const [from, to] of one.edges) {
        if (level.get(to) <= level.get(from) && level.get(from) + 1 < names.length) level.set(to, level.get(from) + 1);
      }
    }
    const rows = new Map();
    const place = new Map(names.map((name) => {
      const column = level.get(name);
      const row = rows.get(column) || 0;
      rows.set(column, row + 1);
      return [name, { x: 6 + column * (box.width + box.gapX), y: 6 + row * (box.height + box.gapY) }];
    }));
    const width = Math.max(...[...place.values()].map((at) => at.x)) + box.width + 6;
    const height = Math.max(...[...place.values()].map((at) => at.y)) + box.height + 6;
    const said = one.edges.map(([from, to]) => `${one.nodes[from]} leads to ${one.nodes[to]}`).join("; ");
    const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${one.title}. ${said}`, class: "graph" });
    for (const [from, to] of one.edges) {
      const [a, b] = [place.get(from), place.get(to)];
      const [y1, y2] = [a.y + box.height / 2, b.y + box.height / 2];
      const [x1, x2] = [a.x + box.width, b.x];
      drawing.append(svg("path", { d: `M${x1},${y1} C${x1 + 25},${y1} ${x2 - 25},${y2} ${x2},${y2}`, class: "edge" }));
      drawing.append(svg("path", { d: `M${x2},${y2} l-7,-4 v8 z`, class: "tip" }));
    }
    for (const [name, at] of place) {
      const text = one.nodes[name];
      drawing.append(svg("rect", { x: at.x, y: at.y, width: box.width, height: box.height, rx: 6, class: "node" }),
        svg("text", { x: at.x + INDENT, y: at.y + 21 }, text.length > letters ? `${text.slice(0, letters - 1)}…` : text, svg("title", {}, text)));
    }
    return SEARCHRL.scroll(one.title, drawing);
  }

  return { draw };
})();

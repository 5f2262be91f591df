// Data that arrive as scripts, and how elements are made. Everything of a run is text here:
// it goes into text nodes and attributes that hold text, never into HTML.
"use strict";

const SEARCHRL = (() => {
  const given = new Map();
  const waiting = new Map();
  const KEPT = 8; // files of rollouts in memory: a page of ten thousand stays small
  const views = {};

  function give(name, text) {
    const value = JSON.parse(text);
    given.set(name, value);
    const wanted = waiting.get(name);
    if (wanted) wanted.found(value);
  }

  function load(name) {
    if (given.has(name)) {
      const value = given.get(name);
      given.delete(name); // the newest is last
      given.set(name, value);
      return Promise.resolve(value);
    }
    if (!waiting.has(name)) {
      const wanted = {};
      wanted.promise = new Promise((found, lost) => Object.assign(wanted, { found, lost }));
      waiting.set(name, wanted);
      const script = document.createElement("script");
      script.src = `data/${name}.js`;
      script.onload = () => {
        script.remove();
        waiting.delete(name);
        forget();
      };
      script.onerror = () => {
        script.remove();
        waiting.delete(name);
        wanted.lost(new Error(`The file data/${name}.js of this report could not be read.`));
      };
      document.head.append(script);
    }
    return waiting.get(name).promise;
  }

  function forget() {
    const files = [...given.keys()].filter((name) => name.startsWith("rollouts_"));
    for (const name of files.slice(0, Math.max(0, files.length - KEPT))) given.delete(name);
  }

  function add(element, children) {
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      element.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return element;
  }

  function set(element, attributes) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (typeof value === "function") element.addEventListener(name, value);
      else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
      else element.setAttribute(name, value === true ? "" : String(value));
    }
    return element;
  }

  function el(tag, attributes, ...children) {
    return set(add(document.createElement(tag), children), attributes);
  }

  function svg(tag, attributes, ...children) {
    return set(add(document.createElementNS("http://www.w3.org/2000/svg", tag), children), attributes);
  }

  function number(value) {
    if (value === null || value === undefined) return "—";
    if (typeof value !== "number") return String(value);
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (Number.isInteger(value)) return value.toLocaleString("en", { useGrouping: size >= 10000 }).replace("-", "−");
    if (size < 0.0005 || size >= 1e6) return value.toExponential(1).replaceAll("-", "−");
    const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
    return value.toFixed(digits).replace("-", "−");
  }

  function signed(value) {
    return value === null || value === undefined ? "—" : (value > 0 ? "+" : "") + number(value);
  }

  function percent(share) {
    if (share === null || share === undefined) return "—";
    const value = 100 * share;
    return `${value !== 0 && value < 0.1 ? value.toPrecision(1) : value.toFixed(1)} %`;
  }

  function count(many, noun) {
    return `${number(many)} ${noun}${many === 1 ? "" : "s"}`;
  }

  // The class of a number: what is good is green, what is bad is red.
  const side = (value) => (value < 0 ? "minus" : value > 0 ? "plus" : "");

  // Key -> the values that have it, in order.
  function groupBy(values, keyOf) {
    const found = new Map();
    for (const value of values) {
      const key = keyOf(value);
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(value);
    }
    return found;
  }

  function scroll(label, child) {
    return el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label }, child);
  }

  function table(label, heads, rows, attributes) {
    return scroll(label, el("table", attributes,
      el("thead", {}, el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, rows)));
  }

  return { give, load, given, el, svg, number, signed, percent, count, side, groupBy, scroll, table, views };
})();

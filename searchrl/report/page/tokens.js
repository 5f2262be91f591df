// Every token of a rollout, coloured by what was recorded of it.
"use strict";

SEARCHRL.tokens = (() => {
  const { el, number, signed, percent } = SEARCHRL;
  const AUTHORS = { P: "prompt", M: "model", E: "environment" };

  // Bounds of five steps, from nothing to much.
  const grade = (value, bounds) => bounds.filter((bound) => value >= bound).length;
  const graded = (hue, labels) => labels.map((label, place) => [`${hue}${place}`, label]);

  const OVERLAYS = {
    author: {
      name: "author",
      text: "Who wrote the token. What was trained is underlined, whatever the colours show.",
      legend: [["a-P", "prompt"], ["a-M", "model"], ["a-E", "environment: it came back from a search or tool"]],
      of: (t) => `a-${t.author}`,
    },
    trained: {
      name: "trained or not",
      text: "A token that entered the loss. Prompt and retrieved text never do.",
      legend: [["up4", "trained"], ["none", "not trained"]],
      of: (t) => (t.trained ? "up4" : "none"),
    },
    logp: {
      name: "log-prob",
      text: "How likely the model held this token when it drew it.",
      legend: graded("hot", ["above 99 %", "90 to 99 %", "50 to 90 %", "10 to 50 %", "1 to 10 %", "below 1 %"]),
      of: (t) => (t.logp === null ? "none" : `hot${grade(-t.logp, [0.01, 0.105, 0.693, 2.303, 4.605])}`),
    },
    ratio: {
      name: "ratio",
      text: "The policy over the sampler at the first update. 1 is agreement.",
      legend: [["up0", "1, within 0.1 %"], ["up2", "up to 5 % higher"], ["up4", "more"], ["down2", "up to 5 % lower"], ["down4", "less"]],
      of: (t) => {
        if (t.ratio === null) return "none";
        const size = Math.abs(t.ratio - 1);
        return size < 0.001 ? "up0" : `${t.ratio > 1 ? "up" : "down"}${size < 0.05 ? 2 : 4}`;
      },
    },
    clipped: {
      name: "clipped",
      text: "Where the clip took the gradient away at the first update.",
      legend: [["hot5", "clipped: no gradient"], ["up0", "not clipped"]],
      of: (t) => (t.clipped === null ? "none" : t.clipped ? "hot5" : "up0"),
    },
    advantage: {
      name: "advantage",
      text: "Above 0 the update makes the token more likely, below 0 less likely.",
      legend: [["up2", "0 to 1"], ["up4", "above 1"], ["down2", "0 to −1"], ["down4", "below −1"]],
      of: (t) => (!t.advantage ? "none" : `${t.advantage > 0 ? "up" : "down"}${Math.abs(t.advantage) <= 1 ? 2 : 4}`),
    },
    entropy: {
      name: "entropy",
      text: "How unsure the model was of this token, in nats: 0.69 is a coin, 2.3 one in ten.",
      legend: graded("hot", ["below 0.01", "0.01 to 0.1", "0.1 to 0.69", "0.69 to 1.4", "1.4 to 2.3", "above 2.3"]),
      of: (t) => (t.entropy === null ? "none" : `hot${grade(t.entropy, [0.01, 0.1, 0.693, 1.386, 2.303])}`),
    },
    share: {
      name: "share of the loss",
      text: "How hard the token was pushed, beside the average trained token of its step.",
      legend: graded("hot", ["nothing", "below a half", "half to one", "one to two times", "two to four times", "above"]),
      of: (t) => (t.push === null ? "none" : `hot${t.push === 0 ? 0 : 1 + grade(t.push, [0.5, 1, 2, 4])}`),
    },
  };

  // What is known of every token, from the columns over the model's tokens.
  function read(rollout, push) {
    const clipped = rollout.clipped ? new Set(rollout.clipped) : null;
    const tokens = [];
    let own = 0;
    let turn = -1;
    const starts = new Map(rollout.turn_starts);
    let segment = -1;
    for (let place = 0; place < rollout.ids.length; place += 1) {
      if (starts.has(place)) turn = starts.get(place);
      if (rollout.segments.some(([start]) => start === place)) segment += 1;
      const id = rollout.ids[place];
      const author = rollout.authors[place];
      const at = author === "M" ? own++ : null;
      const of = (column) => (at === null || !column ? null : column[at]);
      const logp = of(rollout.logp);
      const advantage = at === null ? null : Array.isArray(rollout.advantage) ? of(rollout.advantage) : rollout.advantage;
      const trained = at !== null && of(rollout.ratio) !== null;
      const cut = clipped !== null && clipped.has(place);
      const weight = at !== null && Array.isArray(rollout.weight) ? of(rollout.weight) : rollout.weight;
      const weighed = trained && weight !== null && advantage !== null;
      const size = weighed ? (cut ? 0 : weight * Math.abs(advantage)) : null;
      tokens.push({
        place, id, author, turn, segment, logp, advantage: trained ? advantage : null, trained,
        text: rollout.texts[place] ?? rollout.words[id] ?? `<${id}>`,
        ratio: of(rollout.ratio), entropy: of(rollout.entropy),
        origin: at === null ? null : rollout.origin, weight: trained ? weight : null,
        clipped: trained && clipped ? cut : null,
        share: size !== null && push.total ? size / push.total : null,
        push: size !== null && push.mean ? size / push.mean : null,
      });
    }
    return tokens;
  }

  function shown(token) {
    if (token.text === "") return "◌";
    return token.text.replace(/\n/g, "↵\n").replace(/\t/g, "→\t").replace(/\r/g, "␍");
  }

  function facts(token) {
    const probability = token.logp === null ? "" : ` (${percent(Math.exp(token.logp))})`;
    return [
      ["token", JSON.stringify(token.text)],
      ["id", `${token.id}, number ${token.place + 1} of the rollout`],
      ["author", AUTHORS[token.author] + (token.turn < 0 ? "" : `, turn ${token.turn + 1}`)],
      ["trained", token.trained ? "yes" : "no"],
      ["origin", token.origin ?? "—"],
      ["weight", token.weight === null ? "—" : number(token.weight)],
      ["log-prob", number(token.logp) + probability],
      ["ratio", number(token.ratio)],
      ["clipped", token.clipped === null ? "not recorded" : token.clipped ? "yes: no gradient" : "no"],
      ["advantage", signed(token.advantage)],
      ["entropy", token.entropy === null ? "—" : `${number(token.entropy)} nats`],
      ["share of the loss", token.share === null ? "not recorded"
        : `${percent(token.share)} of its step, ${number(token.push)} times the average token`],
    ];
  }

  // A turn is written by the model; what came back after it in its segment belongs to it as well.
  function blocks(tokens) {
    const found = [];
    for (const token of tokens) {
      const last = found[found.length - 1];
      const same = last && ["segment", "turn", "author"].every((name) => last[name] === token[name]);
      if (same) last.tokens.push(token);
      else found.push({ segment: token.segment, turn: token.turn, author: token.author, tokens: [token] });
    }
    return found;
  }

  function segmentTitle({ ids, segments }, number) {
    const [start, reason] = segments[number];
    const [stop] = segments[number + 1] ?? [ids.length];
    return `Segment ${number + 1}${reason ? ` (${reason})` : ""}, ${SEARCHRL.count(stop - start, "token")}`;
  }

  function draw(rollout, push, { token: first, onSelect, summarise }) {
    const tokens = read(rollout, push);
    const details = el("dl", { class: "facts", "aria-live": "polite" });
    const legend = el("div", { class: "legend" });
    // Segments stand beside each other; a block that is not in the next one is marked.
    const { ids, segments } = rollout;
    const rows = segments.map(([start], at) => `,${ids.slice(start, segments[at + 1]?.[0]).join()},`);
    // What the last turn wrote is there, encoded anew, where it is a summary or a note.
    const isWritten = ({ segment, turn }) => ["summary", "fold"].includes(segments[segment + 1][1])
      && turn === tokens[segments[segment + 1][0] - 1].turn;
    const isLost = (block) => block.author !== "P" && block.segment + 1 < rows.length && !isWritten(block)
      && !rows[block.segment + 1].includes(`,${block.tokens.map((token) => token.id).join()},`);
    const columns = rows.map((_, at) => el("div", {}, rows.length > 1 ? el("h3", {}, segmentTitle(rollout, at)) : null));
    const area = el("div", { class: rows.length > 1 ? "tokens segments side" : "tokens" }, columns);
    const spans = [];
    let selected = null;

    function select(place, { focus = false, silent = false } = {}) {
      if (!spans[place]) return;
      if (selected !== null) {
        spans[selected].setAttribute("aria-selected", "false");
        spans[selected].tabIndex = -1;
      }
      selected = place;
      for (let up = spans[place].parentElement; up && up !== area; up = up.parentElement) {
        if (up.tagName === "DETAILS") up.open = true;
      }
      const box = spans[place].parentElement;
      for (const other of box.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
      spans[place].setAttribute("aria-selected", "true");
      spans[place].tabIndex = 0;
      if (focus) spans[place].focus();
      details.replaceChildren(...facts(tokens[place]).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
      if (!silent) onSelect(place);
    }

    function paint(name) {
      const overlay = OVERLAYS[name];
      tokens.forEach((token, place) => {
        const missing = overlay.of(token);
        spans[place].className = `t ${missing}${token.trained ? " trained" : ""}`;
      });
      const used = new Set(tokens.map((token) => overlay.of(token)));
      legend.replaceChildren(el("p", {}, overlay.text), el("ul", {},
        overlay.legend.map(([mark, label]) => el("li", {}, el("span", { class: `t ${mark}` }, "token"), ` ${label}`)),
        used.has("none") && name !== "trained" ? el("li", {}, el("span", { class: "t none" }, "token"), " nothing recorded, or not trained") : null,
        el("li", {}, el("span", { class: "t trained" }, "token"), " trained")));
    }

    function key(event) {
      const place = Number(event.target.dataset.place);
      if (Number.isNaN(place) || event.ctrlKey || event.metaKey || event.altKey) return;
      const list = [...event.currentTarget.children].map((span) => Number(span.dataset.place));
      const to = {
        ArrowRight: place + 1, ArrowDown: place + 1, ArrowLeft: place - 1, ArrowUp: place - 1,
        Home: list[0], End: list[list.length - 1],
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      select(to, { focus: true });
    }

    const turns = new Map();
    for (const block of blocks(tokens)) {
      const at = `${block.segment}/${block.turn}`;
      const { title: name, isOpen } = summarise(block);
      const title = isLost(block) ? `${name} · not in segment ${block.segment + 2}` : name;
      const list = el("div", { role: "listbox", "aria-label": `Tokens: ${title}`, class: "run", keydown: key, "aria-orientation": "horizontal" });
      block.tokens.forEach((token, at) => {
        const text = shown(token);
        const span = el("span", {
          role: "option", tabindex: at ? "-1" : "0", "aria-selected": "false", "data-place": token.place,
          "aria-label": text.trim() ? null : "space",
        }, text);
        spans[token.place] = span;
        list.append(span);
      });
      list.addEventListener("click", (event) => {
        const span = event.target.closest("[data-place]");
        if (span) select(Number(span.dataset.place));
      });
      list.addEventListener("focusin", (event) => {
        const place = Number(event.target.dataset.place);
        if (!Number.isNaN(place) && place !== selected) select(place);
      });
      const folded = el("details", { open: isOpen, class: `block by-${block.author}` }, el("summary", {}, title), list);
      if (!turns.has(at)) {
        turns.set(at, el("div", { class: "turn" }));
        columns[block.segment].append(turns.get(at));
      }
      turns.get(at).append(folded);
    }
    const choice = el("select", { id: "overlay", change: () => paint(choice.value) },
      Object.entries(OVERLAYS).map(([name, { name: text }]) => el("option", { value: name }, text)));
    paint("author");
    // Once it is in the page: what is not cannot have the focus.
    function begin() {
      const place = first ?? tokens.findIndex((token) => token.author === "M");
      select(place, { focus: first !== null, silent: true });
    }

    const section = el("section", { class: "box" }, el("h2", {}, "Tokens"),
      el("div", { class: "overlay" }, el("label", {}, "Colours show ", choice), legend),
      el("div", { class: "with-facts" }, area, el("aside", { "aria-label": "The chosen token" }, details)));
    return { section, begin };
  }

  return { draw, segmentTitle };
})();

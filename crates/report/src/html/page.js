"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const say = (text) => { const at = document.getElementById("told"); if (at) at.textContent = text; };

  // Copying: the clipboard where the browser allows it, else by a field that is selected.
  const copy = async (text, what) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const field = document.createElement("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    say(`${what} copied`);
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.id === "copy-markdown") copy(data.markdown, "report as Markdown");
    if (button.id === "open-all") toggle(button);
    if (button.dataset.copy !== undefined) copy(button.parentElement.querySelector("pre").textContent, "command");
  });
  const all = () => [...document.querySelectorAll("main details")];
  const toggle = (button) => {
    const open = button.getAttribute("aria-pressed") !== "true";
    all().forEach((part) => { part.open = open; });
    button.setAttribute("aria-pressed", String(open));
  };
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all().filter((part) => !part.open && part.dataset.print !== undefined);
    closed.forEach((part) => { part.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((part) => { part.open = false; }));

  // The timeline.
  const box = document.getElementById("lanes");
  if (!box || !data.spans || data.spans.length === 0) return;
  const svgns = "http://www.w3.org/2000/svg";
  const make = (name, attributes, text) => {
    const node = document.createElementNS(svgns, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const [LANE, START, LENGTH, OP, GROUP, SEQ, STATE] = [0, 1, 2, 3, 4, 5, 6];
  const states = ["finished", "running", "waiting", "called"];
  const words = { finished: "finished", running: "its kernel runs", waiting: "not finished", called: "called; its end is not recorded" };
  const first = Math.min(...data.spans.map((s) => s[START]), 0);
  const last = Math.max(...data.spans.map((s) => s[START] + Math.max(s[LENGTH], 0)), 0);
  const room = Math.max((last - first) * 0.04, 1);
  // What is open reaches a little beyond all that ended.
  const whole = [first - room, last + Math.max((last - first) * 0.12, 3 * room)];
  let [from, to] = whole;
  let chosen = -1;
  const seconds = (us) => {
    const [value, unit] = Math.abs(us) >= 1e6 ? [us / 1e6, "s"] : Math.abs(us) >= 1e3 ? [us / 1e3, "ms"] : [us, "us"];
    return `${Number(value.toPrecision(4))} ${unit}`;
  };
  const describe = (span) => {
    const state = states[span[STATE]];
    const number = span[SEQ] === null ? "" : ` #${span[SEQ]}`;
    const lane = data.lanes[span[LANE]].label;
    const took = span[LENGTH] >= 0 ? `, took ${seconds(span[LENGTH])}` : "";
    return `${lane}: ${data.ops[span[OP]]}${number} of ${data.groups[span[GROUP]]}, called at ${seconds(span[START])}${took}, ${words[state]}`;
  };
  // Operations that overlap within a lane stand below each other, on at most four lines.
  const LINES = 4;
  const lines = data.lanes.map(() => []);
  const line = data.spans.map((span) => {
    const ends = lines[span[LANE]];
    const end = span[LENGTH] < 0 ? Infinity : span[START] + span[LENGTH];
    let at = ends.findIndex((e) => e <= span[START]);
    if (at < 0) at = ends.length < LINES ? ends.length : LINES - 1;
    ends[at] = Math.max(end, ends[at] ?? -Infinity);
    return at;
  });
  const BAR = 11;
  const heights = lines.map((ends) => Math.max(1, ends.length) * (BAR + 2) + 8);
  const tops = [];
  const AXIS = 24;
  const height = heights.reduce((top, h) => { tops.push(top); return top + h; }, AXIS);
  const draw = () => {
    const width = box.clientWidth;
    const left = Math.min(width < 560 ? 96 : 190, width / 3);
    const scale = (width - left - 8) / (to - from);
    const x = (us) => left + (us - from) * scale;
    const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": box.dataset.label });
    const clip = make("clipPath", { id: "plot" });
    clip.append(make("rect", { x: left, y: 0, width: Math.max(width - left, 1), height }));
    svg.append(clip);
    data.lanes.forEach((lane, at) => {
      svg.append(make("rect", { x: 0, y: tops[at], width, height: heights[at], class: at % 2 ? "row odd" : "row" }));
      const room = Math.floor((left - 12) / 6.7);
      const shown = lane.label.length > room ? `${lane.label.slice(0, Math.max(room - 1, 1))}…` : lane.label;
      const label = make("text", { x: 8, y: tops[at] + 16, class: lane.culprit ? "bad" : "" }, shown);
      label.append(make("title", {}, lane.label));
      svg.append(label);
    });
    // About one mark for each 110 columns, at a round distance.
    const rough = (to - from) / Math.max((width - left) / 110, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      svg.append(make("line", { x1: x(at), x2: x(at), y1: AXIS - 5, y2: height, class: "grid" }));
      if (x(at) < width - 40) svg.append(make("text", { x: x(at) + 3, y: 14, class: "soft" }, Math.abs(at) < step / 1e6 ? "0" : seconds(at)));
    }
    const plot = make("g", { "clip-path": "url(#plot)" });
    data.spans.forEach((span, at) => {
      const begin = x(span[START]);
      const end = span[LENGTH] < 0 ? (span[STATE] === 1 || span[STATE] === 2 ? width : begin + 3) : x(span[START] + span[LENGTH]);
      if (end < left || begin > width) return;
      const bar = make("rect", {
        x: Math.max(begin, left - 4), y: tops[span[LANE]] + 4 + line[at] * (BAR + 2), height: BAR, rx: 2,
        width: Math.max(end - Math.max(begin, left - 4), 2), class: `op ${states[span[STATE]]}${at === chosen ? " chosen" : ""}`, "data-at": at,
      });
      plot.append(bar);
    });
    if (data.failed !== false) plot.append(make("line", { x1: x(0), x2: x(0), y1: AXIS - 6, y2: height, class: "moment" }));
    svg.append(plot);
    box.replaceChildren(svg);
  };
  const choose = (at) => {
    chosen = at;
    document.getElementById("chosen").textContent = at < 0 ? "" : describe(data.spans[at]);
    draw();
  };
  const zoom = (factor, center = (from + to) / 2) => {
    const size = Math.min(Math.max((to - from) * factor, 20), (whole[1] - whole[0]) * 1.05);
    const share = (center - from) / (to - from);
    from = center - size * share;
    to = from + size;
    draw();
  };
  const move = (share) => { const by = (to - from) * share; from += by; to += by; draw(); };
  const reset = () => { [from, to] = whole; draw(); };
  const timeAt = (event) => {
    const area = box.getBoundingClientRect();
    const left = Math.min(area.width < 560 ? 96 : 190, area.width / 3);
    return from + ((event.clientX - area.left - left) / (area.width - left - 8)) * (to - from);
  };
  box.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
  }, { passive: false });
  let grip = null;
  box.addEventListener("pointerdown", (event) => { grip = { x: event.clientX, from, to, moved: false }; });
  addEventListener("pointermove", (event) => {
    if (!grip) return;
    const by = ((event.clientX - grip.x) / Math.max(box.clientWidth, 1)) * (grip.to - grip.from);
    if (Math.abs(event.clientX - grip.x) > 4) grip.moved = true;
    if (grip.moved) { from = grip.from - by; to = grip.to - by; draw(); }
  });
  addEventListener("pointerup", (event) => {
    const bar = grip && !grip.moved ? event.target.closest("[data-at]") : null;
    grip = null;
    if (bar && box.contains(bar)) choose(Number(bar.dataset.at));
  });
  box.addEventListener("dblclick", (event) => zoom(0.4, timeAt(event)));
  box.addEventListener("keydown", (event) => {
    const act = {
      ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.6), 0: reset,
      n: () => choose((chosen + 1) % data.spans.length), p: () => choose((chosen + data.spans.length - 1) % data.spans.length),
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  for (const [id, act] of [["zoom-in", () => zoom(0.6)], ["zoom-out", () => zoom(1.6)], ["zoom-all", reset]]) {
    document.getElementById(id).addEventListener("click", act);
  }
  addEventListener("resize", draw);
  draw();
})();

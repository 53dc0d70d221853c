"use strict";
// What all parts share: the data of a build, read once it is wanted; colours; numbers; which build is shown.
const kv = (() => {
  const parsed = new Map();
  const data = (arm) => {
    if (!parsed.has(arm)) {
      const block = document.getElementById(`data-${arm}`);
      parsed.set(arm, block ? JSON.parse(block.textContent) : null);
    }
    return parsed.get(arm);
  };
  const listeners = [];
  const el = (id) => document.getElementById(id);
  const number = (value, digits = 0) =>
    value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const root = document.documentElement;
  const themes = ["auto", "light", "dark"];
  const onTheme = [];
  const tell = () => onTheme.forEach((redraw) => redraw());
  const button = el("theme");
  button.addEventListener("click", () => {
    root.dataset.theme = themes[(themes.indexOf(root.dataset.theme) + 1) % themes.length];
    button.textContent = `Theme: ${root.dataset.theme}`;
    tell();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  matchMedia("print").addEventListener("change", tell); // canvases keep their pixels: they are drawn again for paper
  let opened = []; // on paper nothing can be unfolded
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((part) => { part.open = true; });
    tell();
  });
  addEventListener("afterprint", () => { opened.forEach((part) => { part.open = false; }); tell(); });
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const seconds = (us) => (us < 1e6 ? `${number(us / 1000, us < 1e5 ? 2 : 1)} ms` : `${number(us / 1e6, 3)} s`);
  // Integers from base64 of variable-length bytes: seven bits each, the lowest first, the sign in the lowest bit.
  const unpack = (text) => {
    const bytes = atob(text), values = [];
    let value = 0, scale = 1;
    for (let place = 0; place < bytes.length; place++) {
      const byte = bytes.charCodeAt(place);
      value += (byte & 127) * scale;
      scale *= 128;
      if (byte < 128) {
        values.push(value % 2 ? -(value + 1) / 2 : value / 2);
        [value, scale] = [0, 1];
      }
    }
    return values;
  };
  const running = (steps) => {
    let sum = 0;
    return Float64Array.from(steps, (step) => (sum += step));
  };
  // "7, 20-40 c03": numbers and ranges of requests, any other word is a part of a session's name
  const matcher = (text) => {
    const words = text.split(/[\s,]+/).filter(Boolean);
    if (!words.length) return () => true;
    const tests = words.map((word) => {
      const range = /^(\d+)(?:-(\d+))?$/.exec(word);
      if (!range) return (id, session) => session.toLowerCase().includes(word.toLowerCase());
      const [low, high] = [Number(range[1]), Number(range[2] ?? range[1])];
      return (id) => low <= id && id <= high;
    });
    return (id, session) => tests.some((test) => test(id, session));
  };
  // A canvas at the resolution of the screen; sizes are CSS pixels.
  const canvas = (element, width, height) => {
    const ratio = Math.min(devicePixelRatio || 1, 2.5);
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (element.width !== w || element.height !== h) {
      element.width = w;
      element.height = h;
      element.style.height = `${height}px`;
    }
    const context = element.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    return context;
  };
  const later = (draw) => { // at most one drawing a frame
    let waits = false;
    return () => {
      if (waits) return;
      waits = true;
      requestAnimationFrame(() => { waits = false; draw(); });
    };
  };
  const state = { arm: 0 };
  const choose = (arm) => {
    state.arm = arm;
    document.querySelectorAll("select.build").forEach((select) => { select.value = String(arm); });
    listeners.forEach((listen) => listen(arm));
  };
  document.querySelectorAll("select.build").forEach((select) =>
    select.addEventListener("change", () => choose(Number(select.value))));
  return { data, el, number, colour, seconds, running, unpack, matcher, canvas, later, choose, state,
    onArm: (listen) => listeners.push(listen), onTheme: (redraw) => onTheme.push(redraw) };
})();

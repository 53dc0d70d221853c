// The timeline: a row a request, drawn on a canvas that is as large as what can be seen.
(() => {
  const stage = kv.el("tl-stage");
  if (!stage) return;
  const KINDS = ["queued", "chunk", "generation", "suspended", "preempted", "transfer", "copy", "claim", "publication", "finished"];
  const WORDS = { chunk: "prefill chunk", finished: "end" };
  const [rowsBox, canvas, overview] = [kv.el("tl-rows"), kv.el("tl-canvas"), kv.el("tl-overview")];
  const [tip, readout] = [stage.querySelector(".tip"), kv.el("tl-readout")];
  const spacer = rowsBox.querySelector(".spacer");
  const AXIS = 22, OVERVIEW = 42;
  const hidden = new Set();
  let run = null, shown = [], view = [0, 1], height = 18, chosen = -1, width = 0;

  const COLUMNS = ["row", "kind", "begin", "length", "iteration", "tokens", "pool", "note"];
  const prepare = (stored) => {
    const found = { ...stored, ...Object.fromEntries(COLUMNS.map((name) => [name, kv.unpack(stored[name])])) };
    found.iteration = kv.running(found.iteration);
    const count = found.row.length;
    const begin = kv.running(found.begin);
    const end = Float64Array.from(found.length, (length, place) => begin[place] + length);
    const starts = new Uint32Array(found.requests.length + 1);
    found.row.forEach((row) => { starts[row + 1]++; });
    for (let row = 0; row < found.requests.length; row++) starts[row + 1] += starts[row];
    const next = starts.slice(), spans = new Uint32Array(count);
    found.row.forEach((row, place) => { spans[next[row]++] = place; });
    let last = 1;
    end.forEach((value) => { if (value > last) last = value; });
    const facts = found.requests.map((_, row) => {
      let [first, final, wait] = [Infinity, 0, 0];
      for (let at = starts[row]; at < starts[row + 1]; at++) {
        const place = spans[at];
        first = Math.min(first, begin[place]);
        final = Math.max(final, end[place]);
        if (found.kind[place] === 0) wait += found.length[place];
      }
      return { first, final, wait };
    });
    return { ...found, begin, end, starts, spans, last, facts, load: load(found, begin, end, last) };
  };

  // How many requests wait and how many are served, in 600 parts of the run.
  const load = (found, begin, end, last) => {
    const parts = 600;
    const [waiting, served] = [new Float64Array(parts + 1), new Float64Array(parts + 1)];
    found.kind.forEach((kind, place) => {
      const into = kind === 0 || kind === 3 || kind === 4 ? waiting : kind === 1 || kind === 2 ? served : null;
      if (!into || end[place] <= begin[place]) return;
      const scale = parts / last;
      const [from, to] = [begin[place] * scale, end[place] * scale];
      for (let part = Math.floor(from); part < Math.min(parts, to); part++) {
        into[part] += Math.min(part + 1, to) - Math.max(part, from);
      }
    });
    return { parts, waiting, served };
  };

  const clamp = () => {
    const least = Math.max(50, run.last / 50000);
    const span = Math.min(run.last * 1.01, Math.max(least, view[1] - view[0]));
    const from = Math.min(Math.max(view[0], 0), Math.max(0, run.last * 1.01 - span));
    view = [from, from + span];
  };
  const zoom = (factor, at = (view[0] + view[1]) / 2) => {
    view = [at - (at - view[0]) * factor, at + (view[1] - at) * factor];
    clamp();
    draw();
  };
  const gutter = () => (width < 560 ? 52 : 128);
  const x = (time) => gutter() + ((time - view[0]) / (view[1] - view[0])) * (width - gutter());
  const timeAt = (pixel) => view[0] + ((pixel - gutter()) / (width - gutter())) * (view[1] - view[0]);

  const ticks = (count) => {
    const rough = (view[1] - view[0]) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((unit) => unit * power).find((unit) => unit >= rough);
    const found = [];
    for (let at = Math.ceil(view[0] / step) * step; at <= view[1]; at += step) found.push(at);
    return [found, step];
  };
  const label = (time, step) => (step >= 1e6 ? `${kv.number(time / 1e6)} s`
    : step >= 1000 ? `${kv.number(time / 1e6, Math.max(0, 6 - Math.floor(Math.log10(step))))} s` : `${kv.number(time / 1000, 2)} ms`);

  const paint = (context, kind, from, to, top, colours) => {
    const wide = Math.max(to - from, 0.8);
    const inner = height > 8 ? height - 5 : height - 1;
    context.fillStyle = colours[kind];
    if (kind === 0) context.fillRect(from, top + inner * 0.35, wide, Math.max(1.5, inner * 0.3));
    else if (kind === 1) context.fillRect(from, top, Math.max(wide, 1.6), inner);
    else if (kind === 2) context.fillRect(from, top + inner * 0.15, wide, inner * 0.7);
    else if (kind === 3 || kind === 4 || kind === 5) {
      context.fillRect(from, top, wide, inner);
      if (inner > 6 && wide > 6) { // stripes: told by more than the colour
        context.strokeStyle = colours.paper;
        context.lineWidth = kind === 5 ? 0.8 : 1.4;
        context.beginPath();
        for (let at = from + 3; at < from + wide; at += kind === 4 ? 3.5 : 6) {
          context.moveTo(at, top + inner);
          context.lineTo(Math.min(at + 3, from + wide), top);
        }
        context.stroke();
      }
    } else if (kind === 6) context.fillRect(from, top + inner - 2, Math.max(wide, 2), 2);
    else if (kind === 7) { // a claim points down to where it was made
      const size = Math.min(5, Math.max(2.5, height / 3));
      context.beginPath();
      context.moveTo(from - size, top - 1);
      context.lineTo(from + size, top - 1);
      context.lineTo(from, top + size * 1.5);
      context.fill();
    } else if (kind === 8) context.fillRect(from - 0.6, top + inner - Math.max(2, inner * 0.38), 1.6, Math.max(2, inner * 0.38) + (height > 8 ? 3 : 1));
    else context.fillRect(from - 0.5, top + inner * 0.1, 1.4, inner * 0.8);
  };

  const drawNow = () => {
    width = rowsBox.clientWidth;
    if (!run || !width) return;
    const print = matchMedia("print").matches;
    const tall = print ? Math.min(30, shown.length) * height + AXIS : rowsBox.clientHeight;
    spacer.style.height = `${Math.max(0, shown.length * height + AXIS + 4 - tall)}px`;
    const context = kv.canvas(canvas, width, tall);
    const colours = KINDS.map(kv.colour);
    colours.paper = kv.colour("paper");
    const [ink, faint, grid] = ["ink", "faint", "grid"].map(kv.colour);
    const [marks, step] = ticks(Math.max(3, Math.floor((width - gutter()) / 110)));
    context.strokeStyle = grid;
    context.lineWidth = 1;
    context.beginPath();
    for (const at of marks) {
      const place = Math.round(x(at)) + 0.5;
      if (place < gutter()) continue;
      context.moveTo(place, AXIS - 4);
      context.lineTo(place, tall);
    }
    context.stroke();
    context.fillStyle = faint;
    context.textAlign = "center";
    for (const at of marks) {
      const place = x(at);
      if (place > gutter() + 8 && place < width - 18) context.fillText(label(at, step), place, 13);
    }
    const offset = print ? 0 : rowsBox.scrollTop;
    const first = Math.floor(offset / height);
    const last = Math.min(shown.length, Math.ceil((offset + tall - AXIS) / height));
    context.save();
    context.beginPath();
    context.rect(0, AXIS, width, tall - AXIS);
    context.clip();
    context.textAlign = "right";
    for (let place = first; place < last; place++) {
      const row = shown[place], top = AXIS + place * height - offset + (height > 8 ? 3 : 0.5);
      if (row === chosen) {
        context.fillStyle = kv.colour("panel");
        context.fillRect(0, top - 2, width, height);
      }
      if (height > 8 || place % 3 === 0) {
        context.fillStyle = row === chosen ? ink : faint;
        context.font = `${height > 14 ? 11 : 9}px ${getComputedStyle(document.body).fontFamily}`;
        const named = width < 560 ? `${run.requests[row]}` : `${run.sessions[row].slice(0, 12)}.${run.turns[row]}  #${run.requests[row]}`;
        context.fillText(named, gutter() - 8, top + (height > 8 ? height - 8 : 6));
      }
    }
    context.beginPath();
    context.rect(gutter(), AXIS, width - gutter(), tall - AXIS);
    context.clip();
    for (let place = first; place < last; place++) {
      const row = shown[place], top = AXIS + place * height - offset + (height > 8 ? 3 : 0.5);
      for (let at = run.starts[row]; at < run.starts[row + 1]; at++) {
        const span = run.spans[at], kind = run.kind[span];
        if (run.begin[span] > view[1] || run.end[span] < view[0] || hidden.has(kind)) continue;
        paint(context, kind, x(run.begin[span]), x(run.end[span]), top, colours);
      }
    }
    context.restore();
    drawOverview(faint, grid, colours);
    stage.dataset.view = view.map((time) => Math.round(time)).join(" "); // what is shown, for whoever drives the page
    stage.dataset.rows = String(shown.length);
  };

  const drawOverview = (faint, grid, colours) => {
    const context = kv.canvas(overview, width, OVERVIEW);
    const { parts, waiting, served } = run.load;
    let most = 1;
    for (let part = 0; part < parts; part++) most = Math.max(most, waiting[part] + served[part]);
    const wide = (width - gutter()) / parts;
    for (let part = 0; part < parts; part++) {
      const low = (served[part] / most) * (OVERVIEW - 6), high = (waiting[part] / most) * (OVERVIEW - 6);
      context.fillStyle = colours[2];
      context.fillRect(gutter() + part * wide, OVERVIEW - low, wide + 0.4, low);
      context.fillStyle = colours[0];
      context.fillRect(gutter() + part * wide, OVERVIEW - low - high, wide + 0.4, high);
    }
    const spot = (time) => gutter() + (time / run.last) * (width - gutter());
    context.globalAlpha = 0.62;
    context.fillStyle = colours.paper;
    context.fillRect(gutter(), 0, Math.max(0, spot(view[0]) - gutter()), OVERVIEW);
    context.fillRect(spot(view[1]), 0, width, OVERVIEW);
    context.globalAlpha = 1;
    context.strokeStyle = faint;
    context.strokeRect(Math.max(gutter(), spot(view[0])) + 0.5, 0.5, Math.max(2, Math.min(width - 1, spot(view[1])) - Math.max(gutter(), spot(view[0]))) - 1, OVERVIEW - 1);
    context.fillStyle = faint;
    context.textAlign = "right";
    context.fillText(width < 560 ? "load" : "requests in flight", gutter() - 8, 16);
    context.fillText(`≤ ${kv.number(most)}`, gutter() - 8, 31);
  };
  const draw = kv.later(drawNow);

  const choose = () => {
    const match = kv.matcher(kv.el("tl-filter").value);
    shown = run.requests.map((_, row) => row).filter((row) => match(run.requests[row], run.sessions[row]));
    const by = {
      arrival: (row) => run.facts[row].first,
      longest: (row) => run.facts[row].first - run.facts[row].final,
      wait: (row) => -run.facts[row].wait,
    }[kv.el("tl-order").value];
    if (by) shown.sort((a, b) => by(a) - by(b) || a - b);
    else shown.sort((a, b) => run.sessions[a].localeCompare(run.sessions[b], "en", { numeric: true }) || run.turns[a] - run.turns[b]);
    rowsBox.scrollTop = 0;
    height = Number(kv.el("tl-height").value);
    readout.textContent = `${kv.number(shown.length)} of ${kv.number(run.requests.length)} requests`;
    draw();
  };

  const spanAt = (px, py) => {
    const row = shown[Math.floor((py - AXIS + rowsBox.scrollTop) / height)];
    if (row === undefined || py < AXIS) return [-1, -1];
    let [best, distance] = [-1, 7];
    for (let at = run.starts[row]; at < run.starts[row + 1]; at++) {
      const span = run.spans[at];
      if (hidden.has(run.kind[span])) continue;
      const [from, to] = [x(run.begin[span]), x(run.end[span])];
      const away = px < from ? from - px : px > to ? px - to : to - from > 12 ? 2 : 0;
      if (away < distance) [best, distance] = [span, away];
    }
    return [row, best];
  };
  const told = (row, span) => {
    const who = `request ${run.requests[row]}, session ${run.sessions[row]}, turn ${run.turns[row]}`;
    if (span < 0) return who;
    const kind = KINDS[run.kind[span]], tokens = run.tokens[span];
    const parts = [WORDS[kind] ?? kind];
    if (tokens > 0 || kind === "claim") parts.push(`${kv.number(tokens)} tokens`);
    if (run.pool[span] >= 0) parts.push(`pool ${run.pools[run.pool[span]]}`);
    if (run.note[span] >= 0) parts.push(run.notes[run.note[span]]);
    const when = run.end[span] > run.begin[span] ? `${kv.seconds(run.begin[span])} + ${kv.seconds(run.end[span] - run.begin[span])}` : `at ${kv.seconds(run.begin[span])}`;
    return `${who}\n${parts.join(", ")}\n${when}, iteration ${kv.number(run.iteration[span])}`;
  };
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  // pointers: one moves the view, two zoom it
  const down = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    down.set(event.pointerId, place(event));
    moved = 0;
    if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = place(event), before = down.get(event.pointerId);
    if (before && down.size === 1) {
      const by = timeAt(before[0]) - timeAt(px);
      moved += Math.abs(px - before[0]);
      view = [view[0] + by, view[1] + by];
      clamp();
      draw();
    } else if (before && down.size === 2) {
      const other = [...down.entries()].find(([id]) => id !== event.pointerId)[1];
      const [was, is] = [Math.abs(before[0] - other[0]), Math.abs(px - other[0])];
      if (was > 8 && is > 8) zoom(was / is, timeAt((px + other[0]) / 2));
    }
    if (before) { down.set(event.pointerId, [px, py]); tip.style.display = "none"; return; }
    const [row, span] = spanAt(px, py);
    tip.style.display = row < 0 ? "none" : "block";
    if (row < 0) return;
    tip.textContent = told(row, span);
    tip.style.left = `${Math.max(4, Math.min(px + 14, width - tip.offsetWidth - 4))}px`;
    const under = py + OVERVIEW + 18;
    tip.style.top = `${under + tip.offsetHeight > stage.clientHeight ? under - tip.offsetHeight - 30 : under}px`;
  });
  const up = (event) => {
    if (down.delete(event.pointerId) && moved < 5 && event.type === "pointerup") {
      const [row, span] = spanAt(...place(event));
      chosen = row;
      readout.textContent = row < 0 ? "" : told(row, span).replaceAll("\n", "; ");
      draw();
    }
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  canvas.addEventListener("dblclick", (event) => zoom(0.4, timeAt(place(event)[0])));
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.01), timeAt(place(event)[0]));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      const by = ((event.deltaX || event.deltaY) / width) * (view[1] - view[0]);
      view = [view[0] + by, view[1] + by];
      clamp();
      draw();
    }
  }, { passive: false });

  let brush = null;
  const overviewTime = (event) => ((event.clientX - overview.getBoundingClientRect().left - gutter()) / (width - gutter())) * run.last;
  overview.addEventListener("pointerdown", (event) => { brush = overviewTime(event); overview.setPointerCapture(event.pointerId); });
  overview.addEventListener("pointermove", (event) => {
    if (brush === null) return;
    const now = overviewTime(event);
    if (Math.abs(now - brush) < run.last / 500) return;
    view = [Math.min(brush, now), Math.max(brush, now)];
    clamp();
    draw();
  });
  overview.addEventListener("pointerup", (event) => {
    const now = overviewTime(event), half = (view[1] - view[0]) / 2;
    if (brush !== null && Math.abs(now - brush) < run.last / 500) { view = [now - half, now + half]; clamp(); draw(); }
    brush = null;
  });

  const whole = () => { view = [0, run.last * 1.01]; clamp(); draw(); };
  // At first what the uppermost rows did; later, rows that are scrolled in bring their time along.
  const visible = () => shown.slice(Math.floor(rowsBox.scrollTop / height), Math.ceil((rowsBox.scrollTop + rowsBox.clientHeight - AXIS) / height));
  const opening = () => {
    view = [0, Math.max(1, ...visible().map((row) => run.facts[row].final)) * 1.06];
    clamp();
  };
  const follow = () => {
    const rows = visible();
    if (rows.length && !rows.some((row) => run.facts[row].first <= view[1] && run.facts[row].final >= view[0])) {
      const from = Math.min(...rows.map((row) => run.facts[row].first)), span = view[1] - view[0];
      view = [from - span * 0.03, from + span * 0.97];
      clamp();
    }
    draw();
  };
  const keys = {
    ArrowLeft: () => { view = view.map((time) => time - (view[1] - view[0]) * 0.15); clamp(); draw(); },
    ArrowRight: () => { view = view.map((time) => time + (view[1] - view[0]) * 0.15); clamp(); draw(); },
    "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: whole,
  };
  rowsBox.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  rowsBox.addEventListener("scroll", follow, { passive: true });
  kv.el("tl-in").addEventListener("click", () => zoom(0.5));
  kv.el("tl-out").addEventListener("click", () => zoom(2));
  kv.el("tl-fit").addEventListener("click", whole);
  for (const id of ["tl-filter", "tl-order", "tl-height"]) kv.el(id).addEventListener("input", choose);

  const legend = () => {
    const present = new Set(run.kind);
    kv.el("tl-legend").replaceChildren(...KINDS.flatMap((kind, number) => {
      if (!present.has(number)) return [];
      const button = document.createElement("button"), swatch = document.createElement("i");
      swatch.className = "swatch";
      swatch.style.background = `var(--${kind})`;
      button.type = "button";
      button.dataset.kind = kind;
      button.setAttribute("aria-pressed", String(!hidden.has(number)));
      button.append(swatch, WORDS[kind] ?? kind);
      button.addEventListener("click", () => {
        if (!hidden.delete(number)) hidden.add(number);
        button.setAttribute("aria-pressed", String(!hidden.has(number)));
        draw();
      });
      return [button];
    }));
  };
  const load_ = (arm) => {
    const found = kv.data(arm).timeline;
    stage.hidden = !found;
    if (!found) { run = null; readout.textContent = "No events of this run were kept."; return; }
    run = prepare(found);
    chosen = -1;
    legend();
    choose();
    opening();
  };
  kv.onArm(load_);
  kv.onTheme(drawNow);
  new ResizeObserver(draw).observe(rowsBox);
  load_(0);
})();

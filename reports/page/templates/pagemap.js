// The page map: every pool of a worker after any step, from the changes of its pages.
(() => {
  const slider = kv.el("pm-step");
  if (!slider) return;
  const STATES = ["free", "held", "published", "reusable", "host"];
  const WORDS = { held: "held, private", published: "held and published", reusable: "reusable: cached, held by nobody", host: "in the host tier" };
  let worker = null, state = null, framed = -1, at = 0, applied = 0, playing = 0;

  const prepare = (found) => {
    const { iteration, kind, request, first, count, block } =
      Object.fromEntries(Object.entries(found.changes).map(([name, text]) => [name, kv.unpack(text)]));
    const touched = found.pools.map(() => 0), pool = [], state = [];
    let [page, number] = [0, 0];
    kind.forEach((code, place) => {
      pool.push(Math.floor(code / STATES.length));
      state.push(code % STATES.length);
      first[place] += page;
      block[place] += number;
      page = first[place] + count[place] - 1;
      number = block[place] < 0 ? -1 : block[place] + count[place] - 1;
      touched[pool[place]] = Math.max(touched[pool[place]], page + 1);
    });
    return { pools: found.pools, touched, when: kv.running(iteration), changes: { pool, state, request: kv.running(request), first, count, block },
      steps: kv.running(kv.unpack(found.iteration)), sent: kv.running(kv.unpack(found.sent)) };
  };
  const empty = () => worker.touched.map((size) => ({
    state: new Uint8Array(size), request: new Int32Array(size).fill(-1), block: new Int32Array(size).fill(-1), seen: 0,
  }));
  // The state as step `wanted` (a place in the steps); going back starts again from nothing.
  const go = (wanted) => {
    at = Math.max(0, Math.min(worker.steps.length - 1, wanted));
    const iteration = worker.steps[at] ?? 0;
    if (!state || (applied && worker.when[applied - 1] > iteration)) [state, applied] = [empty(), 0];
    const { pool, state: states, request, first, count, block } = worker.changes;
    while (applied < worker.when.length && worker.when[applied] <= iteration) {
      const pages = state[pool[applied]];
      for (let place = 0; place < count[applied]; place++) {
        const page = first[applied] + place;
        pages.state[page] = states[applied];
        pages.request[page] = request[applied];
        pages.block[page] = block[applied] < 0 ? -1 : block[applied] + place;
      }
      applied++;
    }
  };

  const layout = (pool, width) => {
    const size = worker.touched[pool];
    let cell = 13;
    while (cell > 3 && Math.ceil(size / Math.floor(width / cell)) * cell > 330) cell--;
    const columns = Math.max(1, Math.floor(width / cell));
    return { cell, columns, rows: Math.max(1, Math.ceil(size / columns)) };
  };
  const drawNow = () => {
    if (!worker) return;
    const colours = STATES.map(kv.colour), ink = kv.colour("ink"), accent = kv.colour("bad");
    worker.pools.forEach((pool, number) => {
      const box = kv.el(`pm-pool-${number}`), canvas = box.querySelector("canvas");
      const width = box.clientWidth, { cell, columns, rows } = layout(number, width);
      const context = kv.canvas(canvas, width, rows * cell + 1), pages = state[number];
      const gap = cell > 5 ? 1.5 : cell > 3 ? 1 : 0.5, counts = [0, 0, 0, 0, 0];
      let mine = 0;
      for (let page = 0; page < pages.state.length; page++) {
        const now = pages.state[page], [left, top] = [(page % columns) * cell, Math.floor(page / columns) * cell];
        counts[now]++;
        context.fillStyle = colours[now];
        context.fillRect(left, top, cell - gap, cell - gap);
        if (now === 2 && cell > 6) { // published: a notch, for those who do not see the colour
          context.fillStyle = colours[0];
          const notch = Math.max(2, Math.round(cell / 4));
          context.fillRect(left + cell - gap - notch, top, notch, notch);
        }
        if (framed >= 0 && now && pages.request[page] === framed) {
          mine++;
          context.strokeStyle = cell > 5 ? ink : accent;
          context.lineWidth = cell > 5 ? 2 : 1;
          context.strokeRect(left + 0.5, top + 0.5, cell - gap - 1, cell - gap - 1);
        }
      }
      const rest = Math.max(0, pool.pages - pages.state.length);
      const parts = STATES.map((name, place) => [name, counts[place] + (place ? 0 : rest)]).filter(([, count]) => count);
      box.querySelector(".counts").textContent = parts.map(([name, count]) => `${kv.number(count)} ${name}`).join(", ")
        + (pool.pages ? ` of ${kv.number(pool.pages)}` : "") + (mine ? `; ${kv.number(mine)} of request ${framed}` : "");
      box.dataset.counts = parts.map(([name, count]) => `${name} ${count}`).join(", "); // for whoever drives the page
      box.querySelector(".rest").textContent = rest ? `${kv.number(rest)} further pages are free in the whole run and not drawn.` : "";
    });
    slider.value = String(at);
    const text = `as step ${kv.number(worker.steps[at] ?? 0)} of ${kv.number(worker.steps[worker.steps.length - 1] ?? 0)} goes out, at ${kv.seconds(worker.sent[at] ?? 0)}`;
    slider.setAttribute("aria-valuetext", text);
    kv.el("pm-readout").textContent = text;
  };
  const draw = kv.later(drawNow);
  const show = (wanted) => { go(wanted); draw(); };

  const build = () => {
    const boxes = worker.pools.map((pool, number) => {
      const box = document.createElement("div");
      box.className = "pool";
      box.id = `pm-pool-${number}`;
      const heading = document.createElement("h3"), counts = document.createElement("span"), canvas = document.createElement("canvas"), rest = document.createElement("p");
      heading.textContent = `${pool.name} `;
      counts.className = "counts";
      rest.className = "note rest";
      heading.append(counts);
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `Pages of pool ${pool.name}`);
      box.append(heading, canvas, rest);
      const under = (event) => {
        const frame = canvas.getBoundingClientRect(), { cell, columns } = layout(number, box.clientWidth);
        const page = Math.floor((event.clientY - frame.top) / cell) * columns + Math.floor((event.clientX - frame.left) / cell);
        return page < state[number].state.length && event.clientX - frame.left < columns * cell ? page : -1;
      };
      canvas.addEventListener("pointermove", (event) => {
        const page = under(event), pages = state[number];
        canvas.title = page < 0 ? "" : `page ${page}: ${WORDS[STATES[pages.state[page]]] ?? STATES[pages.state[page]]}`
          + (pages.request[page] >= 0 ? `, request ${pages.request[page]}` : "") + (pages.block[page] >= 0 ? `, block ${pages.block[page]}` : "");
      });
      canvas.addEventListener("click", (event) => {
        const page = under(event);
        framed = page < 0 ? -1 : state[number].request[page];
        kv.el("pm-request").value = framed < 0 ? "" : String(framed);
        draw();
      });
      return box;
    });
    kv.el("pm-pools").replaceChildren(...boxes);
  };
  const take = (found) => {
    worker = found ? prepare(found) : null;
    [state, applied] = [null, 0];
    kv.el("pm-pools").replaceChildren();
    if (!worker) { kv.el("pm-readout").textContent = "No events of this run were kept."; return; }
    build();
    slider.max = String(Math.max(0, worker.steps.length - 1));
    show(Math.min(at || Math.floor(worker.steps.length / 2), worker.steps.length - 1));
  };
  const load = (arm) => {
    const workers = kv.data(arm).map?.workers ?? [];
    const select = kv.el("pm-worker");
    select.replaceChildren(...workers.map((one, place) => new Option(String(one.worker), String(place))));
    kv.el("pm-worker-label").hidden = workers.length < 2;
    take(workers[0]);
  };
  kv.el("pm-worker").addEventListener("change", (event) => take(kv.data(kv.state.arm).map.workers[Number(event.target.value)]));
  slider.addEventListener("input", () => show(Number(slider.value)));
  kv.el("pm-back").addEventListener("click", () => show(at - 1));
  kv.el("pm-next").addEventListener("click", () => show(at + 1));
  kv.el("pm-request").addEventListener("input", (event) => { framed = event.target.value === "" ? -1 : Number(event.target.value); draw(); });
  const stop = () => { clearInterval(playing); playing = 0; kv.el("pm-play").textContent = "Play"; };
  kv.el("pm-play").addEventListener("click", () => {
    if (playing) { stop(); return; }
    if (at >= worker.steps.length - 1) at = 0;
    const stride = Math.max(1, Math.round(worker.steps.length / 300)); // the whole run in some 15 seconds
    kv.el("pm-play").textContent = "Pause";
    playing = setInterval(() => { show(at + stride); if (at >= worker.steps.length - 1) stop(); }, 50);
  });
  kv.el("pm-legend").replaceChildren(...STATES.map((name) => {
    const entry = document.createElement("span"), swatch = document.createElement("i");
    swatch.className = "swatch";
    swatch.style.background = `var(--${name})`;
    entry.append(swatch, WORDS[name] ?? name);
    return entry;
  }));
  kv.toPage = (iteration, request) => { // from a violation to the pages of its request at its step
    if (!worker) return;
    framed = request ?? -1;
    kv.el("pm-request").value = framed < 0 ? "" : String(framed);
    let place = 0;
    while (place < worker.steps.length - 1 && worker.steps[place] < iteration) place++;
    show(place);
    kv.el("pages").scrollIntoView();
  };
  kv.onArm((arm) => { stop(); load(arm); });
  kv.onTheme(drawNow);
  new ResizeObserver(draw).observe(kv.el("pm-pools"));
  load(0);
})();

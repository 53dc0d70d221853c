// Tables that sort by a click, Enter or the space bar on a heading: those that stand in the page, and large ones from data.
const tables = (() => {
  const compare = (a, b) => {
    if (a === b) return 0;
    if (a === null || a === undefined || a === "") return 1; // what is missing stays below
    if (b === null || b === undefined || b === "") return -1;
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  };
  const ordered = (rows, key, down) => {
    const missing = (value) => value === null || value === undefined || value === "";
    return rows
      .map((row, place) => [row, key(row), place])
      .sort((a, b) => {
        const order = compare(a[1], b[1]);
        return (down && !missing(a[1]) && !missing(b[1]) ? -order : order) || a[2] - b[2];
      })
      .map((entry) => entry[0]);
  };
  const headings = (cells, sort) => {
    cells.forEach((cell, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...cell.childNodes);
      cell.append(button);
      cell.setAttribute("aria-sort", "none");
      cell.addEventListener("click", () => { // Enter and the space bar click the button in it
        const now = cell.getAttribute("aria-sort");
        const first = cell.classList.contains("n") ? "descending" : "ascending";
        const next = now === "none" ? first : now === "ascending" ? "descending" : "ascending";
        cells.forEach((other) => other.setAttribute("aria-sort", "none"));
        cell.setAttribute("aria-sort", next);
        sort(place, next === "descending");
      });
    });
  };
  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0];
    if (table.dataset.find) { // so many that rows are looked for
      const field = document.createElement("input"), tools = document.createElement("div"), count = document.createElement("span");
      field.type = "search";
      field.placeholder = "find";
      field.setAttribute("aria-label", "Find rows");
      tools.className = "tools";
      count.className = "readout";
      tools.append(field, count);
      table.parentElement.before(tools);
      field.addEventListener("input", () => {
        const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
        let left = 0;
        for (const row of body.rows) {
          row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
          left += row.hidden ? 0 : 1;
        }
        count.textContent = `${kv.number(left)} of ${kv.number(body.rows.length)}`;
      });
    }
    headings([...table.tHead.rows[0].cells], (place, down) => {
      const key = (row) => {
        const cell = row.cells[place];
        return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
      };
      body.append(...ordered([...body.rows], key, down));
    });
  });
  // columns: {label, numeric, key(row) -> value, text(value, row)}; fill(rows) shows them, 300 at a time
  const large = (table, columns, opened) => {
    const head = table.createTHead().insertRow();
    const body = table.createTBody();
    let rows = [], sorting = null, shown = 0;
    const cells = columns.map((column) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = column.label;
      cell.className = `${column.numeric ? "n" : ""} ${column.screen ? "screen" : ""}`.trim();
      head.append(cell);
      return cell;
    });
    const more = () => {
      const part = document.createDocumentFragment();
      for (const row of rows.slice(shown, shown + 300)) {
        const line = document.createElement("tr");
        columns.forEach((column, place) => {
          const cell = document.createElement(place ? "td" : "th");
          const value = column.key(row);
          cell.textContent = value === null || value === undefined || value === "" ? "–" : column.text ? column.text(value, row) : String(value);
          cell.className = cells[place].className;
          line.append(cell);
        });
        if (opened) opened(line, row);
        part.append(line);
      }
      shown = Math.min(rows.length, shown + 300);
      if (shown < rows.length) {
        const line = document.createElement("tr");
        const cell = line.insertCell();
        cell.colSpan = columns.length;
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = `Show more (${kv.number(rows.length - shown)} are left)`;
        button.addEventListener("click", () => { line.remove(); more(); });
        cell.append(button);
        part.append(line);
      }
      body.append(part);
    };
    const show = () => {
      if (sorting) rows = ordered(rows, columns[sorting[0]].key, sorting[1]);
      shown = 0;
      body.replaceChildren();
      more();
    };
    headings(cells, (place, down) => { sorting = [place, down]; show(); });
    return (wanted) => { rows = wanted; show(); };
  };
  return { large };
})();

// The table of requests of the chosen build.
(() => {
  const table = kv.el("rq-table");
  if (!table) return;
  const plain = (value) => kv.number(value);
  const columns = [
    ["request", "request_id"], ["session", "session"], ["turn", "turn"], ["prompt tokens", "prompt_tokens", 0],
    ["cached", "cached_tokens", 0], ["cached, drafter", "draft_cached_tokens", 0], ["prefilled", "prefilled_tokens", 0],
    ["recomputed", "recomputed_tokens", 0], ["output", "output_tokens", 0], ["steps", "spec_steps", 0],
    ["acceptance length", "acceptance_length", 3], ["window coverage at first", "coverage_first", "%"],
    ["TTFT (ms)", "ttft_ms", 1], ["TPOT (ms)", "tpot_ms", 2], ["end to end (ms)", "e2e_ms", 0],
    ["preempted", "preemptions", 0], ["suspended", "suspensions", 0], ["state", "state"],
  ];
  const present = kv.data(0).requests;
  const paper = ["request_id", "session", "turn", "prompt_tokens", "cached_tokens", "prefilled_tokens", "output_tokens", "acceptance_length", "ttft_ms", "tpot_ms"];
  const shown = columns.filter(([, name]) => name in present).map(([label, name, digits]) => ({
    label, numeric: !["session", "state"].includes(name), screen: !paper.includes(name), key: (row) => row[name],
    text: digits === undefined ? undefined : (value) => typeof value !== "number" ? value
      : digits === "%" ? `${kv.number(value * 100, 1)}%` : digits ? kv.number(value, digits) : plain(value),
  }));
  const fill = tables.large(table, shown);
  const update = () => {
    const found = kv.data(kv.state.arm).requests;
    const names = Object.keys(found);
    const match = kv.matcher(kv.el("rq-filter").value);
    const rows = [];
    for (let place = 0; place < found.request_id.length; place++) {
      if (!match(found.request_id[place], String(found.session?.[place] ?? ""))) continue;
      rows.push(Object.fromEntries(names.map((name) => [name, found[name][place]])));
    }
    kv.el("rq-count").textContent = `${kv.number(rows.length)} of ${kv.number(found.request_id.length)}`;
    fill(rows);
  };
  kv.el("rq-filter").addEventListener("input", update);
  kv.onArm(update);
  update();
})();

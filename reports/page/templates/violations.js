// The table of all violations; a row opens to its story.
(() => {
  const table = kv.el("vi-table");
  if (!table) return;
  const builds = [...kv.el("vi-build").options].slice(1).map((option) => option.textContent);
  const rows = builds.flatMap((build, arm) => {
    const found = kv.data(arm)?.violations;
    return !found ? [] : found.code.map((code, place) => ({
      arm, build, number: place + 1, code, request: found.request[place], worker: found.worker[place], pool: found.pool[place],
      page: found.page[place], position: found.position[place], step: found.step[place], message: found.message[place],
      against: found.expected[place] || found.found[place] ? `expected ${found.expected[place]}, found ${found.found[place]}` : "",
      headline: found.headlines[place], story: found.stories[place], law: found.laws[code],
    }));
  });
  kv.el("vi-law").append(...[...new Set(rows.map((row) => row.code))].sort().map((code) => new Option(code, code)));
  const several = rows.some((row) => row.worker !== null);
  const columns = [["build", "build"], ["#", "number", 1], ["law", "code"], ...(several ? [["worker", "worker", 1]] : []), ["request", "request", 1],
    ["pool", "pool"], ["page", "page", 1], ["position", "position", 1], ["step", "step", 1], ["what", "message"], ["", "against"]].map(
    ([label, name, digits]) => ({ label, numeric: digits === 1, key: (row) => row[name],
      text: digits === 1 ? (value) => (typeof value === "number" ? kv.number(value) : value) : undefined }));
  columns[columns.length - 1].label = "expected and found";
  const pre = (text, kind) => {
    const element = document.createElement("pre");
    element.className = kind;
    element.textContent = text;
    return element;
  };
  const open = (line, row) => {
    if (line.nextElementSibling?.classList.contains("open")) {
      line.nextElementSibling.remove();
      line.setAttribute("aria-expanded", "false");
      return;
    }
    const under = document.createElement("tr"), cell = under.insertCell();
    under.className = "open";
    cell.colSpan = columns.length;
    if (row.law) {
      const law = document.createElement("p");
      law.className = "note";
      law.textContent = `The law ${row.code}: ${row.law}`;
      cell.append(law);
    }
    if (row.story === undefined) cell.append(pre(`The page has no story of this one: kvtwin run --out and kvtwin explain tell it (violation ${row.number}).`, ""));
    else cell.append(pre(`iteration  request  what happened\n${row.story}`, ""), pre(row.headline, "broke"));
    if (kv.toPage && row.step !== null && kv.data(row.arm).map) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `Pages at step ${row.step}`;
      button.addEventListener("click", () => { if (kv.state.arm !== row.arm) kv.choose(row.arm); kv.toPage(row.step, row.request); });
      cell.append(button);
    }
    line.after(under);
    line.setAttribute("aria-expanded", "true");
  };
  const fill = tables.large(table, columns, (line, row) => {
    line.tabIndex = 0;
    line.setAttribute("aria-expanded", "false");
    line.addEventListener("click", () => open(line, row));
    line.addEventListener("keydown", (event) => {
      if (event.target === line && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); open(line, row); }
    });
  });
  const update = () => {
    const [build, law, words] = ["vi-build", "vi-law", "vi-filter"].map((id) => kv.el(id).value);
    const phrase = words.trim().toLowerCase().replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/g, "\\s+");
    const wanted = new RegExp(/\d$/.test(phrase) ? `${phrase}(?!\\d)` : phrase); // request 7 is not request 71
    const found = rows.filter((row) => (build === "" || row.arm === Number(build)) && (law === "" || row.code === law)
      && wanted.test(`${row.code} request ${row.request} pool ${row.pool} page ${row.page} position ${row.position} step ${row.step} ${row.message} ${row.against}`.toLowerCase()));
    kv.el("vi-count").textContent = `${kv.number(found.length)} of ${kv.number(rows.length)}`;
    fill(found);
  };
  for (const id of ["vi-build", "vi-law", "vi-filter"]) kv.el(id).addEventListener("input", update);
  update();
})();

// Tables and charts of a report. The data of the charts is the JSON in #data; the rows of a table and of its chart have the same numbers.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const percent = (share) => `${(100 * share).toFixed(2).replace(/^-(0\.00)$/, "$1")}%`;
  const span = (low, high) => `${percent(low)} .. ${percent(high)}`;

  // Labels are measured, and cut between graphemes, so that no label is clipped and no emoji is split. `short_labels` of hubbub.text
  // cuts those of plots in the same way.
  const measure = document.createElement("canvas").getContext("2d");
  measure.font = "12px system-ui, sans-serif";
  const widthOf = (text) => measure.measureText(text).width;
  const segmenter = new Intl.Segmenter();
  function withoutMiddle(text, pixels) {
    if (widthOf(text) <= pixels) return text;
    const parts = [...segmenter.segment(text)].map((part) => part.segment);
    const cut = (kept) => {
      const end = Math.floor(kept / 3);
      return `${parts.slice(0, kept - end).join("")}…${parts.slice(parts.length - end).join("")}`;
    };
    let kept = parts.length - 1;
    while (kept > 1 && widthOf(cut(kept)) > pixels) kept -= 1;
    return cut(kept);
  }

  /** Return the length of the start that texts share, less the part of a word at its end, of at most so many characters. */
  function sharedStart(texts, mostKept) {
    let shared = 0;
    while (shared < texts[0].length && texts.every((text) => text[shared] === texts[0][shared])) shared += 1;
    const [word] = texts[0].slice(0, shared).match(/[\p{L}\p{N}_]*$/u);
    const before = segmenter.segment(texts[0]).containing(shared - Math.min(word.length, mostKept));
    return before === undefined ? shared : before.index;
  }

  /** Return a map from labels to texts of a width: long ones that begin alike without the start that they share, others without the middle. */
  function shortLabels(labels, pixels) {
    const shown = new Map(labels.map((label) => [label, withoutMiddle(label, pixels)]));
    const cut = [...shown.keys()].filter((label) => shown.get(label) !== label && pixels > 32);
    for (const alike of d3.group(cut, (label) => label.slice(0, Math.floor(pixels / 20))).values()) {
      const shared = alike.length > 1 ? sharedStart(alike, Math.floor(pixels / 32)) : 0;
      if (shared === 0) continue;
      const ends = shortLabels(alike.map((label) => label.slice(shared)), pixels - widthOf("…"));
      for (const label of alike) shown.set(label, `…${ends.get(label.slice(shared)).replace(/^…/, "")}`);
    }
    return shown;
  }

  // Observable Plot's options that all charts share.
  const base = (width) => ({ width, marginRight: 16, style: { background: "none", fontSize: "12px" } });

  /** Return a chart that screen readers take for one image: the table of its section has the same numbers. */
  function plot(options) {
    const marks = options.marks.filter(Boolean);
    for (const mark of marks) mark.ariaHidden = "true";
    const chart = Plot.plot({ ...options, marks });
    chart.setAttribute("role", "img");
    return chart;
  }
  const shareAxis = (label) => ({ label, percent: true, grid: true, nice: true });
  const tip = (channels, describe) => ({
    ...channels, title: (mark) => describe(mark).join("\n"), fill: "var(--card)", stroke: "var(--dim)", lineWidth: 20, lineHeight: 1.3, fontSize: 12,
  });
  /** Return the ends of the axis of shares over time, in percent: `trend_axis` of documents/document.py. */
  function trendAxis(points) {
    const [low, high] = [d3.min(points, (point) => point.low ?? point.share) ?? 0, d3.max(points, (point) => point.high ?? point.share) ?? 1];
    return [low <= high - low ? Math.min(low, 0) : low, high].map((end) => 100 * end);
  }
  const interval = (low, high) => `${data.level} interval ${span(low, high)}`;

  const TITLE_ROOM = 28; // above the highest tick, for the title of the axis
  const PADDING = 0.2;
  const periodAxis = (periods, width) => {
    const every = Math.ceil((periods.length * 80) / Math.max(width - 70, 80));
    return { type: "point", domain: periods, label: null, ticks: periods.filter((_, t) => t % every === 0), padding: PADDING };
  };

  /** Return lines at the periods with events, with their labels, or with their numbers in the list below the chart if a label has no room. */
  function eventMarks(periods, { width, marginLeft, marginRight }) {
    const marks = (data.events ?? []).map(({ period, labels }, n) => ({ period, label: labels.join(", "), number: String(n + 1) }));
    const shown = marks.filter(({ period }) => periods.includes(period));
    const step = (width - marginLeft - marginRight) / (periods.length - 1 + 2 * PADDING);
    const legible = (text) => {
      let end = 0;
      return shown.filter((mark) => {
        const [middle, half] = [marginLeft + step * (PADDING + periods.indexOf(mark.period)), widthOf(mark[text]) / 2];
        if (middle - half < end || middle + half > width) return false;
        end = middle + half + 6;
        return true;
      });
    };
    const text = legible("label").length === shown.length ? "label" : "number";
    if (shown.length === 0) return [];
    return [
      Plot.ruleX(shown, { x: "period", stroke: "var(--dim)", strokeDasharray: "4,3" }),
      Plot.text(legible(text), { x: "period", text, frameAnchor: "top", lineAnchor: "bottom", dy: -6, fill: "var(--ink)" }),
    ];
  }
  const eventsAt = (day) => (data.events ?? []).filter(({ period }) => period === day).flatMap(({ labels }) => labels);

  /** Return estimates with their intervals, one row for each index. */
  function intervals(box, indices, width) {
    const { axis, labels, share, low, high, joint_low, joint_high, truth, detected } = data.estimates;
    const shown = indices.filter((i) => share[i] !== null);
    const room = Math.max(56, Math.min(280, width * 0.36));
    const names = shortLabels(shown.map((i) => labels[i]), room);
    const longest = Math.max(28, ...[...names.values()].map(widthOf));
    const found = (i) => detected?.[i] !== false;
    const ends = (x1, x2) => ({ y: String, x1: (i) => x1[i], x2: (i) => x2[i] });
    const describe = (i) => [
      `${labels[i]}: ${percent(share[i])}`,
      interval(low[i], high[i]),
      ...(joint_low ? [`simultaneous ${span(joint_low[i], joint_high[i])}`] : []),
      ...(truth ? [`true share ${percent(truth[i])}`] : []),
      ...(detected ? [detected[i] === null ? "not tested" : detected[i] ? "detected" : "not detected"] : []),
    ];
    const chart = plot({
      ...base(width),
      height: shown.length * 20 + 56,
      marginLeft: Math.ceil(longest) + 14,
      marginBottom: 36,
      ariaLabel: `${axis ?? "Estimated shares"} with intervals of ${shown.length} rows of the table below`,
      x: shareAxis(axis ?? "share of reports (%)"),
      y: { domain: shown.map(String), label: null, tickSize: 0, tickFormat: (i) => names.get(labels[i]) },
      marks: [
        Plot.ruleX([0], { stroke: "var(--dim)" }),
        joint_low && Plot.ruleY(shown, { ...ends(joint_low, joint_high), stroke: "var(--bar)", strokeWidth: 1 }),
        Plot.ruleY(shown, { ...ends(low, high), stroke: (i) => (found(i) ? "var(--bar)" : "var(--dim)"), strokeWidth: width < 500 ? 2 : 3 }),
        Plot.dot(shown, {
          x: (i) => share[i], y: String, r: width < 500 ? 2 : 4, strokeWidth: 2,
          stroke: (i) => (found(i) ? "var(--bar)" : "var(--dim)"), fill: (i) => (found(i) ? "var(--bar)" : "var(--card)"),
        }),
        truth && Plot.tickX(shown, { x: (i) => truth[i], y: String, stroke: "var(--truth)", strokeWidth: 2.5, insetTop: 2, insetBottom: 2 }),
        Plot.tip(shown, Plot.pointerY(tip({ x: (i) => share[i], y: String }, describe))),
      ],
      color: { type: "identity" },
    });
    const rowAt = (i) => chart.scale("y").apply(String(i)) + chart.scale("y").bandwidth / 2;
    return { chart, describe, steps: shown.map((i) => [chart.scale("x").apply(share[i] * 100), rowAt(i)]) };
  }

  /** Return shares by period with their intervals, a line for each index; at most eight. */
  function trends(box, indices, width) {
    const { labels, periods, share, low, high } = data.trends;
    const shown = indices.slice(0, 8);
    const colour = (i) => `var(--line-${shown.indexOf(i) + 1})`;
    const points = shown.flatMap((i) => periods.map((period, t) => ({ i, t, period, share: share[i][t], low: low[i][t], high: high[i][t] })));
    const known = points.filter((point) => point.share !== null);
    const channels = { x: "period", z: "i", stroke: (point) => colour(point.i) };
    const describe = (point) => [`${labels[point.i]}: ${percent(point.share)}`, interval(point.low, point.high), `${data.by} ${point.period}`, ...eventsAt(point.period)];
    const room = { width, marginLeft: 48, marginRight: 36 }; // half a date
    const events = eventMarks(periods, room);
    const axis = trendAxis(known);
    const cut = axis[0] > 0;
    const chart = plot({
      ...base(width),
      ...room,
      marginTop: events.length > 0 ? 40 : TITLE_ROOM,
      height: 320,
      ariaLabel: `Shares by ${data.by} with intervals of ${shown.length} rows of the table below${cut ? "; the axis does not begin at 0" : ""}`,
      x: periodAxis(periods, width),
      y: { ...shareAxis(cut ? "share of reports (%), axis not from 0" : "share of reports (%)"), domain: axis },
      color: { type: "identity" },
      marks: [
        !cut && Plot.ruleY([0], { stroke: "var(--dim)" }),
        ...events,
        ...(data.ordered
          ? [
              Plot.areaY(known, { x: "period", z: "i", y1: "low", y2: "high", fill: (point) => colour(point.i), fillOpacity: 0.16 }),
              Plot.lineY(known, { ...channels, y: "share", strokeWidth: 2 }),
            ]
          : [Plot.ruleX(known, { ...channels, y1: "low", y2: "high", strokeWidth: 3, strokeOpacity: 0.4 })]),
        Plot.dot(known, { ...channels, y: "share", symbol: (point) => shown.indexOf(point.i), fill: "var(--card)", strokeWidth: 2, r: 4 }),
        Plot.tip(known, Plot.pointer(tip({ x: "period", y: "share" }, describe))),
      ],
      symbol: { range: d3.symbolsFill.concat(d3.symbolWye), domain: d3.range(8), legend: false },
    });
    const symbols = d3.symbolsFill.concat(d3.symbolWye);
    keys(box, shown.map((i, line) => [labels[i], `var(--line-${line + 1})`, symbols[line % symbols.length]]));
    const steps = known.map((point) => [chart.scale("x").apply(point.period), chart.scale("y").apply(point.share * 100)]);
    return { chart, describe, steps };
  }

  /** Return the means by period with their intervals. */
  function means(box, indices, width) {
    const { periods, value, low, high, texts, unit } = data.means;
    const points = periods.map((period, t) => ({ period, mean: value[t], low: low[t], high: high[t], texts: texts[t] }));
    const describe = (point) => [`${data.level} interval ${point.texts[0]}`, `estimate ${point.texts[1]}`, `${data.by} ${point.period}`, ...eventsAt(point.period)];
    const room = { width, marginLeft: 64, marginRight: 36 }; // half a date
    const events = eventMarks(periods, room);
    const chart = plot({
      ...base(width),
      ...room,
      marginTop: events.length > 0 ? 40 : TITLE_ROOM,
      height: 280,
      ariaLabel: `Means by ${data.by} with intervals; the table below has the same numbers`,
      x: periodAxis(periods, width),
      y: { label: `mean (${unit})`, grid: true, nice: true },
      marks: [
        ...events,
        Plot.ruleX(points, { x: "period", y1: "low", y2: "high", stroke: "var(--bar)", strokeWidth: 3 }),
        data.ordered ? Plot.line(points, { x: "period", y: "mean", stroke: "var(--bar)", strokeOpacity: 0.5 }) : null,
        Plot.dot(points, { x: "period", y: "mean", fill: "var(--bar)", r: 4 }),
        Plot.tip(points, Plot.pointerX(tip({ x: "period", y: "mean" }, describe))),
      ],
    });
    return { chart, describe, steps: points.map((point) => [chart.scale("x").apply(point.period), chart.scale("y").apply(point.mean)]) };
  }

  /** Show the labels of the lines under their chart. */
  function keys(box, entries) {
    const caption = box.closest("figure").querySelector(".keys");
    const names = shortLabels(entries.map(([label]) => label), 200);
    caption.replaceChildren(
      ...entries.map(([label, colour, symbol]) => {
        const key = document.createElement("span");
        key.className = "key";
        const sign = d3.create("svg").attr("viewBox", "-16 -8 32 16").attr("aria-hidden", "true");
        sign.append("path").attr("d", "M-16,0H16").style("stroke", colour).style("stroke-width", 3);
        sign.append("path").attr("d", d3.symbol(symbol, 90)()).style("stroke", colour).style("stroke-width", 3).style("fill", "var(--card)");
        const name = document.createElement("bdi");
        name.textContent = names.get(label);
        name.title = label;
        key.append(sign.node(), name);
        return key;
      }),
    );
  }

  /** Return the residuals of each bit (column) in each cohort (row), as an image. */
  function residuals(box, indices, width) {
    const { cohorts, bits, values } = data.residuals;
    const cells = values.map((z, i) => ({ cohort: Math.floor(i / bits), bit: i % bits, z }));
    const known = cells.filter((cell) => cell.z !== null);
    const none = dark.matches ? "#28313b" : "#f1f3f5";
    const colours = dark.matches ? ["#f08c4f", none, "#5b9de3"] : ["#c2410c", none, "#2563a8"];
    const describe = (cell) => [`cohort ${cell.cohort}`, `bit ${cell.bit}`, `${cell.z.toFixed(1)} standard errors`];
    const row = Math.max(2, Math.min(20, 360 / cohorts));
    const chart = plot({
      ...base(width),
      height: cohorts * row + 60,
      marginLeft: 48,
      marginBottom: 36,
      ariaLabel: `Residuals of ${bits} bits in ${cohorts} cohorts; the largest are in the table below`,
      x: { domain: [-0.5, bits - 0.5], label: "bit", ticks: d3.ticks(0, bits - 1, Math.min(bits, width / 70)).filter(Number.isInteger), tickFormat: "d" },
      y: { domain: [cohorts - 0.5, -0.5], label: "cohort", ticks: d3.ticks(0, cohorts - 1, Math.min(cohorts, 6)).filter(Number.isInteger), tickFormat: "d" },
      color: { type: "linear", domain: [-4, 0, 4], range: colours, clamp: true, interpolate: "rgb", unknown: "transparent" },
      marks: [
        Plot.raster(values.map((z) => (z === null ? NaN : z)), {
          width: bits, height: cohorts, x1: -0.5, x2: bits - 0.5, y1: -0.5, y2: cohorts - 0.5, imageRendering: "pixelated",
        }),
        Plot.tip(known, Plot.pointer(tip({ x: "bit", y: "cohort" }, describe))),
      ],
    });
    return { chart, describe, steps: known.map((cell) => [chart.scale("x").apply(cell.bit), chart.scale("y").apply(cell.cohort)]) };
  }

  /** Return the distribution function of an ordinal metric with its intervals. */
  function distribution(box, indices, width) {
    const { points, unit } = data.distribution;
    const describe = (point) => [`below ${point.edge}: ${percent(point.share)}`, interval(point.low, point.high)];
    const chart = plot({
      ...base(width),
      height: 280,
      marginTop: TITLE_ROOM,
      marginLeft: 48,
      marginBottom: 36,
      ariaLabel: "Share of the values below each edge, with intervals; the quantiles are in the table below",
      x: { label: unit, nice: true },
      y: { ...shareAxis("share below (%)"), domain: [0, 100] },
      marks: [
        Plot.ruleX(points, { x: "edge", y1: "low", y2: "high", stroke: "var(--bar)", strokeWidth: 3 }),
        Plot.line(points, { x: "edge", y: "share", stroke: "var(--bar)", strokeOpacity: 0.5 }),
        Plot.dot(points, { x: "edge", y: "share", fill: "var(--bar)", r: 4 }),
        Plot.tip(points, Plot.pointerX(tip({ x: "edge", y: "share" }, describe))),
      ],
    });
    return { chart, describe, steps: points.map((point) => [chart.scale("x").apply(point.edge), chart.scale("y").apply(point.share * 100)]) };
  }

  const drawers = { intervals, trends, means, residuals, distribution };

  /** Draw the chart of a figure, and let the pointer and the arrow keys move over its marks. Return a function that draws other rows. */
  function attach(figure) {
    const box = figure.querySelector(".chart");
    const readout = figure.querySelector(".readout");
    let indices = [];
    let drawnWidth = 0;
    let current = -1;
    let drawn = null;
    const draw = () => {
      drawnWidth = Math.floor(box.clientWidth);
      if (drawnWidth === 0) return;
      drawn = drawers[box.dataset.chart](box, indices, drawnWidth);
      current = -1;
      readout.textContent = "";
      drawn.chart.addEventListener("input", () => {
        readout.textContent = drawn.chart.value == null ? "" : drawn.describe(drawn.chart.value).join(", ");
      });
      box.replaceChildren(drawn.chart);
    };
    const point = (type, [x, y]) => {
      const { left, top } = drawn.chart.getBoundingClientRect();
      drawn.chart.dispatchEvent(new PointerEvent(type, { clientX: left + x, clientY: top + y, pointerType: "mouse", bubbles: true }));
    };
    box.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape" && drawn !== null) {
        current = -1;
        point("pointerleave", [0, 0]);
      } else if (step !== undefined && drawn !== null && drawn.steps.length > 0) {
        event.preventDefault();
        current = Math.max(0, Math.min(drawn.steps.length - 1, current + step));
        point("pointerenter", drawn.steps[current]);
        point("pointermove", drawn.steps[current]);
      }
    });
    new ResizeObserver(() => {
      if (Math.floor(box.clientWidth) !== drawnWidth) draw();
    }).observe(box);
    dark.addEventListener("change", draw);
    return (some) => {
      indices = some;
      draw();
    };
  }

  /** Let the controls of a section sort and filter the rows of its table, and show the first of them in its chart. */
  function control(section) {
    const table = section.querySelector("table");
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const headings = [...table.tHead.rows[0].cells];
    const form = section.querySelector("form");
    const { find, sort, detected, most } = form.elements;
    if (most !== undefined && rows.length <= Number(most.options[0].value)) most.closest("label").remove(); // the chart has all rows
    const output = form.querySelector("output");
    const figure = section.querySelector("figure");
    const draw = figure === null ? () => {} : attach(figure);
    const sorted = headings.findIndex((heading) => heading.hasAttribute("aria-sort"));
    let order = { column: sorted, down: headings[sorted].getAttribute("aria-sort") === "descending" };

    const key = (row, column) => {
      const cell = row.cells[column];
      return "v" in cell.dataset ? (cell.dataset.v === "" ? null : Number(cell.dataset.v)) : cell.textContent.trim().toLowerCase();
    };
    const compare = (a, b) => {
      const [x, y] = [key(a, order.column), key(b, order.column)];
      if (x === null || y === null) return (x === null) - (y === null); // what is not known comes last
      const difference = typeof x === "number" ? x - y : x.localeCompare(y);
      return order.down ? -difference : difference;
    };
    const apply = () => {
      const query = find.value.trim().toLowerCase();
      rows.forEach((row, i) => {
        row.hidden = !texts[i].includes(query) || (detected !== undefined && detected.checked && row.dataset.detected !== "1");
      });
      const shown = [...body.rows].filter((row) => !row.hidden);
      const inChart = most === undefined ? shown.length : Math.min(shown.length, Number(most.value));
      output.value =
        `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} ${section.dataset.noun}` +
        (most !== undefined && inChart < shown.length ? `; the chart shows the first ${inChart.toLocaleString("en")}` : "");
      draw(shown.slice(0, inChart).map((row) => Number(row.dataset.i)));
    };
    const sortBy = (column, down) => {
      order = { column, down };
      body.append(...[...rows].sort(compare));
      headings.forEach((heading, i) => {
        heading.removeAttribute("aria-sort");
        if (i === column) heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      });
      sort.value = `${column} ${down ? "down" : "up"}`;
      apply();
    };
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const numeric = rows.length > 0 && "v" in rows[0].cells[column].dataset;
        sortBy(column, order.column === column ? !order.down : numeric);
      });
      for (const down of [true, false]) {
        const option = new Option(`${heading.textContent.trim()}, ${down ? "descending" : "ascending"}`, `${column} ${down ? "down" : "up"}`);
        sort.append(option);
      }
    });
    sort.addEventListener("change", () => {
      const [column, direction] = sort.value.split(" ");
      sortBy(Number(column), direction === "down");
    });
    find.addEventListener("input", apply);
    for (const other of [detected, most]) other?.addEventListener("change", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    sortBy(order.column, order.down);
  }

  document.querySelectorAll("figure").forEach((figure) => {
    if (figure.querySelector(".chart") !== null && figure.closest("[data-noun]") === null) attach(figure)(d3.range(data.estimates?.labels.length ?? 0));
  });
  document.querySelectorAll("section[data-noun]").forEach(control);
})();

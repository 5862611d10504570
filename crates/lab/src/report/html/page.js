// What the page does by itself: it draws the charts, and goes from light to dark.
// Names come from measurements: they reach the document as text, never as HTML.
(function () {
  "use strict";

  // Each with its middle at the value.
  const PLUS = "path://M4 0H8V4H12V8H8V12H4V8H0V4H4Z";
  const SYMBOLS = ["circle", "rect", "triangle", "diamond", "roundRect", PLUS, "arrow", "circle"];
  const DASHES = ["solid", "solid", "dashed", "dashed", "dotted", "dotted", [8, 3, 2, 3], [2, 2]];
  // What a paper says stands out.
  const STAR = "path://M10 0L12.5 7.3L20 7.6L14 12.2L16.2 19.6L10 15.2L3.8 19.6L6 12.2L0 7.6L7.5 7.3Z";
  // Values that differ by more than this factor begin on a logarithmic axis.
  const FAR_APART = 8;
  const ROW = 26;
  const LEGEND_LINE = 24;
  // Width of a mark with the gaps around it and its name.
  const LEGEND_MARK = 42;
  const LEGEND_FONT = "12px";

  document.documentElement.classList.add("scripted");
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const layouts = JSON.parse(document.getElementById("layouts").textContent);
  const drawn = new Map();

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function seriesColour(series) {
    return colour("--c" + (series.index % 8));
  }

  // Three digits that matter, without an exponent.
  function digits(value) {
    if (value === 0) return "0";
    const decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.max(Math.abs(value), 1e-4))));
    return value.toFixed(Math.min(decimals, 6));
  }

  // What is written at an axis: no more digits than the mark needs.
  function short(value) {
    return String(Number(value.toPrecision(6)));
  }

  function element(name, text, parent) {
    const made = document.createElement(name);
    if (text !== null) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  }

  // What is said of some points: a table of who, how much, and the interval.
  function tip(title, points, unit) {
    const box = element("div", null);
    box.className = "tip";
    element("b", title, box);
    const table = element("table", null, box);
    for (const { series, point } of points) {
      const row = element("tr", null, table);
      const name = element("th", null, row);
      const mark = element("span", null, name);
      mark.className = "mark";
      mark.style.background = seriesColour(series);
      name.appendChild(document.createTextNode(series.name));
      element("td", digits(point.median) + " " + unit, row);
      if (series.is_paper) continue;
      element("td", "[" + digits(point.low) + "–" + digits(point.high) + "]", row);
      element("td", point.runs + (point.runs === 1 ? " round" : " rounds"), row);
    }
    return box;
  }

  function extremes(chart) {
    let low = Infinity;
    let high = -Infinity;
    for (const series of chart.series) {
      for (const point of series.points) {
        low = Math.min(low, point.low, ...point.rounds);
        high = Math.max(high, point.high, ...point.rounds);
      }
    }
    if (chart.is_ratio) {
      low = Math.min(low, 1);
      high = Math.max(high, 1);
    }
    return [low, high];
  }

  function isLog(chart) {
    const [low, high] = extremes(chart);
    return low > 0 && high / low > FAR_APART;
  }

  // The axis of values.
  function values(chart, log) {
    const axis = {
      type: log ? "log" : "value",
      name: chart.unit,
      nameTextStyle: { color: colour("--faint") },
      axisLabel: { color: colour("--faint"), formatter: short, hideOverlap: true },
      axisLine: { show: true, lineStyle: { color: colour("--line") } },
      splitLine: { lineStyle: { color: colour("--line") } },
      minorSplitLine: { show: log, lineStyle: { color: colour("--line"), opacity: 0.4 } },
      minorTick: { show: log, splitNumber: 9 },
    };
    if (log) {
      axis.logBase = 10;
      const [low, high] = extremes(chart);
      axis.min = Math.pow(10, Math.floor(Math.log10(low) + 1e-9));
      axis.max = Math.pow(10, Math.ceil(Math.log10(high) - 1e-9));
    } else {
      axis.min = 0;
    }
    return axis;
  }

  // Where points are: along an axis of numbers, or in rows, a group of them for each place.
  function layout(chart) {
    if (chart.axis !== null) {
      const at = (place) => chart.places[place].at;
      return { along: (place, _, value) => [at(place), value], rows: [] };
    }
    const rows = [];
    const indexes = new Map();
    chart.places.forEach((place, index) => {
      if (chart.places.length > 1) rows.push({ label: place.label, isPlace: true });
      for (const series of chart.series) {
        if (!series.points.some((point) => point.place === index)) continue;
        indexes.set(index + " " + series.name, rows.length);
        rows.push({ label: series.name, isPlace: false });
      }
    });
    const row = (place, series) => indexes.get(place + " " + series.name);
    return { along: (place, series, value) => [value, row(place, series)], rows };
  }

  function lines(chart, place) {
    const made = [];
    for (const series of chart.series) {
      const own = seriesColour(series);
      const symbol = series.is_paper ? STAR : SYMBOLS[series.mark % SYMBOLS.length];
      const points = series.points;
      const intervals = [];
      const rounds = [];
      for (const point of points) {
        const at = (value) => place.along(point.place, series, value);
        intervals.push(at(point.low), at(point.high), [null, null]);
        rounds.push(...point.rounds.map(at));
      }
      const common = { name: series.name, itemStyle: { color: own }, color: own };
      made.push({
        ...common,
        type: chart.axis === null || series.is_paper ? "scatter" : "line",
        data: points.map((point) => place.along(point.place, series, point.median)),
        symbol,
        symbolSize: series.is_paper ? 20 : chart.axis === null ? 12 : 8,
        lineStyle: { width: 2, color: own, type: DASHES[series.mark % DASHES.length] },
        emphasis: { focus: "series" },
        z: 4,
      });
      made.push({
        ...common,
        type: "line",
        data: intervals,
        symbol: "none",
        silent: true,
        lineStyle: { width: chart.axis === null ? 3 : 2, color: own },
        tooltip: { show: false },
        z: 3,
      });
      made.push({
        ...common,
        type: "scatter",
        data: rounds,
        symbol: "emptyCircle",
        symbolSize: 4,
        silent: true,
        itemStyle: { color: own, opacity: 0.55 },
        tooltip: { show: false },
        z: 2,
      });
    }
    return made;
  }

  // The line at which there is no difference.
  function reference(chart) {
    if (!chart.is_ratio) return [];
    const at = chart.axis === null ? { xAxis: 1 } : { yAxis: 1 };
    return [{
      type: "line",
      data: [],
      markLine: {
        silent: true,
        symbol: "none",
        label: { show: false },
        lineStyle: { color: colour("--ink"), type: "solid", width: 1 },
        data: [at],
      },
    }];
  }

  function tooltip(chart, place) {
    const common = {
      confine: true,
      backgroundColor: colour("--paper"),
      borderColor: colour("--line"),
      textStyle: { color: colour("--ink") },
    };
    const of = (index) => {
      const found = [];
      for (const series of chart.series) {
        const point = series.points.find((point) => point.place === index);
        if (point) found.push({ series, point });
      }
      return found;
    };
    if (chart.axis !== null) {
      const byMedian = (one, other) => other.point.median - one.point.median;
      return {
        ...common,
        trigger: "axis",
        formatter: (items) => {
          const index = chart.places.findIndex((place) => place.at === items[0].value[0]);
          return index < 0 ? "" : tip(chart.places[index].label, of(index).sort(byMedian), chart.unit);
        },
      };
    }
    return {
      ...common,
      trigger: "item",
      formatter: (item) => {
        const series = chart.series.find((series) => series.name === item.seriesName);
        const point = series.points[item.dataIndex];
        return tip(chart.places[point.place].label, [{ series, point }], chart.unit);
      },
    };
  }

  // The axis of what was varied.
  function varied(chart) {
    const places = chart.places;
    const first = places[0].at;
    const last = places[places.length - 1].at;
    const log = first > 0 && last / first > FAR_APART;
    const label = (value) => {
      const place = places.find((place) => Math.abs(place.at - value) < 1e-6 * Math.max(1, value));
      return place ? place.label : "";
    };
    return {
      type: log ? "log" : "value",
      logBase: 2,
      name: chart.axis,
      nameLocation: "middle",
      nameGap: 30,
      nameTextStyle: { color: colour("--faint") },
      min: log ? first : Math.min(first, last),
      max: last,
      axisLabel: { color: colour("--faint"), formatter: label, hideOverlap: true },
      axisTick: { show: true },
      axisLine: { show: true, lineStyle: { color: colour("--line") } },
      splitLine: { show: false },
    };
  }

  function rowsAxis(rows) {
    return {
      type: "category",
      inverse: true,
      data: rows.map((row) => row.label),
      axisTick: { show: false },
      axisLine: { lineStyle: { color: colour("--line") } },
      splitLine: { show: true, interval: 0, lineStyle: { color: colour("--line"), opacity: 0.5 } },
      axisLabel: {
        interval: 0,
        width: Math.min(190, Math.round(window.innerWidth * 0.3)),
        overflow: "truncate",
        color: (_, index) => colour(rows[index].isPlace ? "--ink" : "--faint"),
        fontWeight: "normal",
      },
    };
  }

  // Lines that the legend takes in this width: a narrow screen shows all of it, too.
  function legendLines(chart, width) {
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = LEGEND_FONT + " " + getComputedStyle(document.body).fontFamily;
    let lines = 1;
    let used = 0;
    for (const series of chart.series) {
      const needed = LEGEND_MARK + pen.measureText(series.name).width;
      if (used > 0 && used + needed > width) {
        lines += 1;
        used = 0;
      }
      used += needed;
    }
    return lines;
  }

  function option(chart, log, legend) {
    const place = layout(chart);
    const isSwept = chart.axis !== null;
    const across = values(chart, log);
    if (!isSwept) Object.assign(across, { nameLocation: "middle", nameGap: 28 });
    return {
      animation: false,
      // By its name: a legend is laid out by how wide its words are in that font.
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
      grid: { left: 12, right: 18, top: isSwept ? 52 + legend * LEGEND_LINE : 40, bottom: 34, containLabel: true, outerBoundsMode: "same" },
      legend: {
        show: isSwept,
        type: "plain",
        top: 34,
        left: 0,
        right: 0,
        data: chart.series.map((series) => series.name),
        textStyle: { color: colour("--ink") },
        inactiveColor: colour("--line"),
      },
      toolbox: {
        right: 0,
        top: 0,
        iconStyle: { borderColor: colour("--faint") },
        emphasis: { iconStyle: { borderColor: colour("--link"), textFill: colour("--link") } },
        feature: {
          dataZoom: {
            filterMode: "none",
            title: { zoom: "Zoom: drag over a part", back: "Back" },
            brushStyle: { color: colour("--link"), opacity: 0.2 },
          },
          restore: { title: "All of it" },
          saveAsImage: { type: "svg", name: chart.id, title: "SVG", backgroundColor: colour("--paper") },
        },
      },
      dataZoom: [
        { type: "inside", xAxisIndex: 0, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: "ctrl", preventDefaultMouseMove: false },
      ],
      tooltip: tooltip(chart, place),
      xAxis: isSwept ? varied(chart) : across,
      yAxis: isSwept ? across : rowsAxis(place.rows),
      series: [...lines(chart, place), ...reference(chart)],
    };
  }

  function draw(chart) {
    const at = document.getElementById(chart.id);
    if (!at || drawn.has(chart.id)) return;
    const rows = layout(chart).rows.length;
    if (chart.axis === null) at.style.height = Math.max(150, rows * ROW + 110) + "px";
    const instance = echarts.init(at, null, { renderer: "svg" });
    const entry = { chart, instance, log: isLog(chart) };
    drawn.set(chart.id, entry);
    offerLog(at, entry);
    show(entry);
  }

  // Parts of the machine, in the order of a message's way. Each has a colour.
  const ACTORS = ["sender", "softirq", "scheduler", "receiver", "program"];
  // Stages of one part of the machine, one after the other, differ in how dense their colour is.
  const DENSITIES = [1, 0.72, 0.5, 0.34];
  const LETTER = 7;
  const AXIS_NAMES = 190;

  // An opaque label stands on it, so the colour itself is transparent.
  function actorColour(actor, density) {
    const alpha = Math.round(255 * density).toString(16).padStart(2, "0");
    return colour("--c" + Math.max(0, ACTORS.indexOf(actor))) + alpha;
  }

  // The stages of all bars in their order, each with its place among those of its part.
  function stagesOf(chart) {
    const stages = new Map();
    const counts = {};
    for (const bar of chart.bars) {
      for (const segment of bar.segments) {
        if (stages.has(segment.stage)) continue;
        counts[segment.actor] = (counts[segment.actor] || 0) + 1;
        stages.set(segment.stage, { ...segment, place: counts[segment.actor] - 1 });
      }
    }
    return [...stages.values()];
  }

  function layoutTip(bar, segment) {
    const box = element("div", null);
    box.className = "tip";
    element("b", segment.stage + ": " + segment.about, box);
    const range = " [" + digits(segment.low) + "–" + digits(segment.high) + "]";
    element("div", bar.name + ", " + segment.actor + ": " + digits(segment.value) + " µs" + range, box);
    return box;
  }

  // A bar for each candidate, its stages in order, and below it a bar for its closing error.
  function layoutOption(chart, width) {
    const rows = chart.bars.flatMap((bar) => [bar.name, "closing error"]);
    const whole = Math.max(...chart.bars.map((bar) => bar.segments.reduce((sum, it) => sum + it.value, 0)));
    const fits = (value, text) => (value / whole) * (width - AXIS_NAMES) > LETTER * text.length;
    const made = ACTORS.map((actor) => ({
      type: "bar", stack: "way", name: actor, data: [], itemStyle: { color: actorColour(actor, 1) },
    }));
    for (const stage of stagesOf(chart)) {
      const short = stage.stage.replace("kernel.", "");
      const data = chart.bars.flatMap((bar) => {
        const own = bar.segments.find((it) => it.stage === stage.stage);
        return own ? [{ value: own.value, label: { show: fits(own.value, short) } }, "-"] : ["-", "-"];
      });
      made.push({
        type: "bar", stack: "way", name: stage.stage, data, barWidth: 34,
        itemStyle: {
          color: actorColour(stage.actor, DENSITIES[stage.place % DENSITIES.length]),
          borderColor: colour("--panel"), borderWidth: 1,
        },
        label: { position: "inside", formatter: short, color: stage.place === 0 ? colour("--paper") : colour("--ink") },
        emphasis: { focus: "none" },
      });
    }
    const said = (bar) => (bar.error < 0 ? "−" : "+") + digits(Math.abs(bar.error_share) * 100) + " %";
    made.push({
      type: "bar", stack: "way", name: "closing error", barWidth: 34,
      data: chart.bars.flatMap((bar) => ["-", {
        value: Math.abs(bar.error), label: { show: true, position: "right", formatter: said(bar), color: colour("--ink") },
      }]),
      itemStyle: { color: colour("--worse") },
    });
    return {
      animation: false,
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
      grid: { left: 12, right: 24, top: 40, bottom: 34, containLabel: true, outerBoundsMode: "same" },
      legend: { data: ACTORS, selectedMode: false, top: 0, left: 0, textStyle: { color: colour("--ink") } },
      tooltip: {
        trigger: "item", confine: true, backgroundColor: colour("--paper"), borderColor: colour("--line"),
        textStyle: { color: colour("--ink") },
        formatter: (item) => {
          const bar = chart.bars[Math.floor(item.dataIndex / 2)];
          const segment = bar.segments.find((it) => it.stage === item.seriesName);
          return segment ? layoutTip(bar, segment) : element("b", "closing error: " + said(bar));
        },
      },
      xAxis: {
        type: "value", name: "µs", nameLocation: "middle", nameGap: 28,
        nameTextStyle: { color: colour("--faint") },
        axisLabel: { color: colour("--faint"), formatter: short, hideOverlap: true },
        splitLine: { lineStyle: { color: colour("--line") } },
      },
      yAxis: {
        type: "category", inverse: true, data: rows, axisTick: { show: false },
        axisLine: { lineStyle: { color: colour("--line") } },
        axisLabel: { interval: 0, color: (_, index) => colour(index % 2 === 0 ? "--ink" : "--faint") },
      },
      series: made,
    };
  }

  function drawLayout(chart) {
    const at = document.getElementById(chart.id);
    if (!at || drawn.has(chart.id)) return;
    at.style.height = chart.bars.length * 2 * 46 + 100 + "px";
    const entry = { chart, instance: echarts.init(at, null, { renderer: "svg" }) };
    drawn.set(chart.id, entry);
    show(entry);
  }

  // Draws a chart anew, in the room that it has now.
  function show(entry) {
    const at = entry.instance.getDom();
    if (entry.chart.bars) {
      entry.instance.resize();
      entry.instance.setOption(layoutOption(entry.chart, at.clientWidth), true);
      return;
    }
    const legend = entry.chart.axis === null ? 1 : legendLines(entry.chart, at.clientWidth);
    at.style.setProperty("--legend", (legend - 1) * LEGEND_LINE + "px");
    entry.instance.resize();
    entry.instance.setOption(option(entry.chart, entry.log, legend), true);
  }

  // A button that changes the axis of values, where it can be either.
  function offerLog(at, entry) {
    const [low] = extremes(entry.chart);
    if (!(low > 0)) return;
    const button = element("button", null);
    button.type = "button";
    button.className = "tools";
    const say = () => { button.textContent = entry.log ? "Linear axis" : "Logarithmic axis"; };
    button.addEventListener("click", () => {
      entry.log = !entry.log;
      say();
      show(entry);
    });
    say();
    at.parentNode.insertBefore(button, at.parentNode.firstChild);
  }

  function redraw() {
    for (const entry of drawn.values()) show(entry);
  }

  // Charts that are folded away have no size: they are drawn when they are unfolded.
  function drawVisible() {
    layouts.forEach(drawLayout);
    for (const chart of charts) {
      const at = document.getElementById(chart.id);
      if (at && !at.closest("details:not([open])")) draw(chart);
    }
  }

  function themes() {
    const root = document.documentElement;
    const button = document.getElementById("theme");
    const names = { auto: "as the system’s", light: "light", dark: "dark" };
    let theme = "auto";
    try { theme = localStorage.getItem("toehold-theme") || "auto"; } catch (_) { /* Some browsers keep nothing for files. */ }
    const apply = () => {
      if (!(theme in names)) theme = "auto";
      if (theme === "auto") root.removeAttribute("data-theme");
      else root.setAttribute("data-theme", theme);
      button.textContent = "Theme: " + names[theme];
      redraw();
    };
    button.addEventListener("click", () => {
      theme = { auto: "light", light: "dark", dark: "auto" }[theme];
      try { localStorage.setItem("toehold-theme", theme); } catch (_) { /* It lasts as long as the page. */ }
      apply();
    });
    button.hidden = false;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    apply();
  }

  // Paper is white and shows everything.
  function printing() {
    const folded = [];
    let theme = null;
    addEventListener("beforeprint", () => {
      theme = document.documentElement.getAttribute("data-theme");
      document.documentElement.setAttribute("data-theme", "light");
      for (const details of document.querySelectorAll("details.more:not([open])")) {
        folded.push(details);
        details.open = true;
      }
    });
    addEventListener("afterprint", () => {
      if (theme === null) document.documentElement.removeAttribute("data-theme");
      else document.documentElement.setAttribute("data-theme", theme);
      while (folded.length) folded.pop().open = false;
    });
  }

  for (const details of document.querySelectorAll("details")) {
    details.addEventListener("toggle", drawVisible);
  }
  addEventListener("resize", redraw);
  themes();
  drawVisible();
  printing();
  document.documentElement.setAttribute("data-drawn", drawn.size);
})();

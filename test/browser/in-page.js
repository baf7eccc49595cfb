// Evaluated in the page itself by CDP, so it works where scripts of pages are switched off. Its value is what was found.
(() => {
  const visible = (element) =>
    element.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true });
  const name = (element) =>
    `${element.tagName.toLowerCase()}${element.id ? `#${element.id}` : ""}.${element.getAttribute("class") ?? ""}`;

  // Colours as the browser made them: rgb(a) with numbers; anything else is an error of this script.
  const parse = (text) => {
    const found = /^rgba?\(([\d.]+), ([\d.]+), ([\d.]+)(?:, ([\d.]+))?\)$/.exec(text);
    if (!found) throw new Error(`colour ${text}`);
    return [+found[1], +found[2], +found[3], found[4] === undefined ? 1 : +found[4]];
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const background = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    return layers.reduceRight((below, layer) => over(layer, below), dark ? [0, 0, 0, 1] : [255, 255, 255, 1]);
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((value) => {
      const share = value / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  /** WCAG 2.2, contrast ratio of the text in an element against what lies behind it. */
  const contrast = (element) => {
    const behind = background(element);
    const style = getComputedStyle(element);
    const colour = over(parse(element instanceof SVGElement ? style.fill : style.color), behind);
    const [one, two] = [luminance(colour), luminance(behind)];
    return (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
  };

  const withText = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || !parent || parent.closest("title,desc,style,option") || !visible(parent)) continue;
    withText.add(parent);
  }
  const faint = [];
  let lowest = 21;
  for (const element of withText) {
    const ratio = contrast(element);
    lowest = Math.min(lowest, ratio);
    if (ratio < 4.5) faint.push(`${name(element)} ${ratio.toFixed(2)} "${element.textContent.trim().slice(0, 30)}"`);
  }

  const text = (id) => document.getElementById(id)?.textContent?.trim() ?? "";
  const charts = [...document.querySelectorAll("svg:not([aria-hidden=true])")].map((svg) => ({
    name: (svg.getAttribute("aria-labelledby") ?? "").split(" ").filter(Boolean).map(text).filter(Boolean).join(": "),
    role: svg.getAttribute("role"),
    table: Boolean(
      svg.closest("figure")?.querySelector("table") ??
        document.getElementById(svg.getAttribute("aria-details") ?? "-")?.querySelector("table"),
    ),
  }));

  /** Labels of one picture that lie over each other, or over its edge, by more than a pixel. */
  const overlaps = [];
  for (const svg of document.querySelectorAll("svg")) {
    if (!visible(svg)) continue;
    const labels = [...svg.querySelectorAll("text")].filter((one) => one.textContent.trim());
    const boxes = labels.map((one) => one.getBoundingClientRect());
    const edge = svg.getBoundingClientRect();
    const said = (i) => `"${labels[i].textContent.trim()}"`;
    for (const [i, a] of boxes.entries()) {
      const out = Math.max(edge.left - a.left, a.right - edge.right, edge.top - a.top, a.bottom - edge.bottom);
      if (out > 1) overlaps.push(`${said(i)} leaves its picture by ${out.toFixed(1)}`);
      for (const [j, b] of boxes.entries()) {
        if (j <= i) continue;
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 1 && high > 1)
          overlaps.push(`${said(i)} over ${said(j)} by ${wide.toFixed(1)} x ${high.toFixed(1)}`);
      }
    }
  }

  const levels = [...document.querySelectorAll("h1,h2,h3,h4")].filter(visible).map((heading) => +heading.tagName[1]);
  const faults = [];
  const fault = (wrong, what) => wrong && faults.push(what);
  fault(document.documentElement.lang !== "en", "no language");
  fault(!document.title, "no title");
  for (const landmark of ["header", "main", "footer", "nav"])
    fault(!document.querySelector(landmark), `no ${landmark}`);
  fault(document.querySelectorAll("main").length !== 1, "not one main");
  fault(levels.filter((level) => level === 1).length !== 1, "not one h1");
  fault(
    levels.some((level, i) => i > 0 && level > levels[i - 1] + 1),
    `headings jump: ${levels}`,
  );
  for (const nav of document.querySelectorAll("nav,[role=region]"))
    fault(!nav.getAttribute("aria-label"), `${name(nav)} has no label`);
  for (const part of document.querySelectorAll("section"))
    fault(!text(part.getAttribute("aria-labelledby") ?? "-"), `${name(part)} has no name`);
  for (const link of document.querySelectorAll("a,button,summary"))
    fault(!link.textContent.trim(), `${name(link)} says nothing`);
  for (const link of document.querySelectorAll('a[href^="#"]'))
    fault(!document.getElementById(link.getAttribute("href").slice(1)), `${link.getAttribute("href")} leads nowhere`);
  for (const field of document.querySelectorAll("input,select,textarea"))
    fault(!field.labels?.length, `${name(field)} has no label`);
  for (const table of document.querySelectorAll("table")) {
    fault(!table.caption?.textContent.trim(), `${name(table)} has no caption`);
    fault(
      [...table.querySelectorAll("th")].some((head) => !/^(?:col|row)$/.test(head.scope)),
      `${name(table)}: a heading without scope`,
    );
  }
  const roles = { TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TD: "cell" };
  for (const part of document.querySelectorAll(".market,.market *")) {
    // Drawn as blocks on a phone, a table keeps its meaning only by its roles.
    fault(roles[part.tagName] && part.getAttribute("role") !== roles[part.tagName], `${name(part)} lost its role`);
  }
  const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
  for (const id of ids) fault(ids.filter((one) => one === id).length > 1, `id ${id} twice`);
  for (const box of document.querySelectorAll(".scroll")) {
    fault(
      visible(box) && box.scrollWidth > box.clientWidth + 1 && box.tabIndex < 0,
      `${name(box)} scrolls but the keyboard cannot`,
    );
  }

  return {
    faint,
    lowest,
    texts: withText.size,
    charts,
    labels: document.querySelectorAll("svg text").length,
    overlaps,
    faults,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    letters: [...document.querySelectorAll(".grade")].map((element) => ({
      text: element.textContent.trim(),
      ratio: contrast(element),
    })),
    smallest: Math.min(
      ...[...withText].map((element) => {
        const size = parseFloat(getComputedStyle(element).fontSize);
        const svg = element.closest("svg");
        return svg?.viewBox.baseVal.width
          ? (size * svg.getBoundingClientRect().width) / svg.viewBox.baseVal.width
          : size;
      }),
    ),
    stops: [...document.querySelectorAll("a[href],button,input,select,textarea,summary,[tabindex='0']")].filter(visible)
      .length,
    scriptsRan: document.documentElement.dataset.ran === "yes",
  };
})();

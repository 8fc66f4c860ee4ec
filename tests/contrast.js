// An expression: [[contrast, text, colour]] of each visible text against each colour behind it. Lines give
// 1.5 times their contrast, since WCAG 2 asks for 3 where text needs 4.5.
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const found = [];

  function rgba(css) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = css;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  }

  function linear(v) {
    return v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  }

  function contrast(a, b) {
    const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  }

  function ground(node) {
    for (; node; node = node.parentElement) {
      const colour = rgba(getComputedStyle(node).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return rgba("white");
  }

  function behind(node) {
    const mark = node.closest(".mark")?.querySelector("circle, path:not(.stem)");
    if (mark) return [rgba(getComputedStyle(mark).fill)];
    const bar = node.closest("td")?.querySelector(".bar");
    return bar ? [ground(node), rgba(getComputedStyle(bar, "::before").backgroundColor)] : [ground(node)];
  }

  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = texts.nextNode());) {
    const node = text.parentElement, style = getComputedStyle(node);
    if (!text.data.trim() || node.closest("[hidden], .unseen, noscript, script")) continue;
    if (node.getClientRects().length === 0) continue;
    const colour = node.closest("svg") ? style.fill : style.color;
    for (const under of behind(node))
      found.push([contrast(rgba(colour), under), text.data.trim().slice(0, 30), colour]);
  }
  for (const line of document.querySelectorAll(".timeline .line, .timeline .moment, .sample .line")) {
    const colour = getComputedStyle(line).stroke;
    found.push([1.5 * contrast(rgba(colour), ground(line.closest("div, li"))), "a line", colour]);
  }
  return found;
})()

// Announces changes to screen readers. They report changes only in a region that already existed,
// so this region persists while other parts of the page are replaced.
const region = element.querySelector("[role=status]");
const announced = [".alfa-notice", ".alfa-score strong", ".alfa-odd.is-first"];
const before = new Map();

new MutationObserver(() => {
  const news = [];
  for (const selector of announced) {
    const parts = Array.from(document.querySelectorAll(selector));
    const text = parts.map((part) => part.textContent.replace(/\s+/g, " ").trim()).join(" ");
    if (text && text !== before.get(selector)) news.push(text);
    before.set(selector, text);
  }
  if (news.length) region.textContent = news.join(" ");
}).observe(document.body, { childList: true, subtree: true, characterData: true });

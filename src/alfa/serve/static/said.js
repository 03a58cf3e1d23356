// Says what has changed to those who do not see it. Screen readers hear of changes only in a region
// that was there before them, so that this one stays, and all else comes and goes.
const region = element.querySelector("[role=status]");
const heard = [".alfa-notice", ".alfa-score strong", ".alfa-odd.is-first"];
const before = new Map();

new MutationObserver(() => {
  const news = [];
  for (const selector of heard) {
    const parts = Array.from(document.querySelectorAll(selector));
    const text = parts.map((part) => part.textContent.replace(/\s+/g, " ").trim()).join(" ");
    if (text && text !== before.get(selector)) news.push(text);
    before.set(selector, text);
  }
  if (news.length) region.textContent = news.join(" ");
}).observe(document.body, { childList: true, subtree: true, characterData: true });

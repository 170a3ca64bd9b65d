/* Formulas in running text cannot break: one that is wider than its line scrolls in its own box, not the page. */
(function () {
  "use strict";
  function mark() {
    document.querySelectorAll(".bd-article span.math").forEach(function (span) {
      span.classList.remove("wide");
      span.removeAttribute("tabindex");
      var block = span.closest("p, li, td, th, dd, figcaption, h1, h2, h3, div");
      if (block && span.getBoundingClientRect().width > block.clientWidth + 1 && block.clientWidth > 0) {
        span.classList.add("wide");
        span.setAttribute("tabindex", "0");
      }
    });
  }
  window.addEventListener("load", function () {
    var ready = window.MathJax && window.MathJax.startup && window.MathJax.startup.promise;
    if (ready) { ready.then(mark); }
    window.addEventListener("resize", mark);
    document.addEventListener("toggle", mark, true);
  });
})();

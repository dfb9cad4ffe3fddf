// A report: the document's page.

initTheme();
document.getElementById('page').append(...({ sweep: sweepPage, reproduction: reproductionPage }[doc.kind] || comparisonPage)());
redrawAll();

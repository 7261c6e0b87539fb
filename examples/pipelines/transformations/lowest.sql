-- Matches are a table like any other: the lowest bottom of each symbol.
CREATE MATERIALIZED VIEW lowest AS
SELECT symbol, count(*) AS dips, min(bottom) AS bottom
FROM dips
GROUP BY symbol;

PARTITION BY symbol ORDER BY ts
MEASURES FIRST(strt.ts) AS started, LAST(down.price) AS bottom, FINAL LAST(up.ts) AS ended, COUNT(*) AS ticks
ONE ROW PER MATCH
AFTER MATCH SKIP TO LAST up
PATTERN (strt down+ up+)
DEFINE down AS down.price < PREV(down.price), up AS up.price > PREV(up.price);

MATCH_RECOGNIZE (
  PARTITION BY account, "Currency Code"
  ORDER BY booked_at DESC NULLS FIRST, id ASC NULLS LAST
  MEASURES MATCH_NUMBER() AS n, CLASSIFIER() AS label, RUNNING SUM(amount) AS so_far
  ALL ROWS PER MATCH
  PATTERN (small{3,} large)
  DEFINE small AS amount < 10, large AS large.amount > 100 * AVG(small.amount)
);

PATTERN (A);
PATTERN ();
PATTERN (() | A);
ORDER BY t ALL ROWS PER MATCH SHOW EMPTY MATCHES PATTERN (a*) DEFINE a AS a.x > 0;
ORDER BY t ALL ROWS PER MATCH OMIT EMPTY MATCHES PATTERN (a*?) DEFINE a AS a.x > 0;
ORDER BY t ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (a b{2}) DEFINE b AS b.x < PREV(b.x);
ORDER BY t ONE ROW PER MATCH SHOW EMPTY MATCHES INITIAL PATTERN (^ a+ $);
ORDER BY t AFTER MATCH SKIP PAST LAST ROW PATTERN ((a | b)+? c);
ORDER BY t AFTER MATCH SKIP TO NEXT ROW PATTERN (a{2} b{2,} c{,3} d{2,4} e{,});
ORDER BY t AFTER MATCH SKIP TO FIRST b PATTERN (a b+ c);
ORDER BY t AFTER MATCH SKIP TO b PATTERN (a b+ c);
ORDER BY t AFTER MATCH SKIP TO LAST b OR NEXT ROW PATTERN (a b* c);
ORDER BY t AFTER MATCH NO SKIP PATTERN (a ->> b);
ORDER BY t PATTERN (PERMUTE(a, b c, d+) {- x+ -} y);
ORDER BY t PATTERN (a+? b*? c?? d{2}? e{2,}? f{,3}? g{1,3}?);
ORDER BY t PATTERN (a++ b*+ c?+ d{2,5}+);
ORDER BY t PATTERN ((a (b (c d)*)+)?);
ORDER BY t PATTERN ((){5,} | ^* | $+ | a);
ORDER BY t PATTERN (a -> b+ -> !c -> d) WITHIN INTERVAL '1' HOUR DEFINE a AS kind = 'a', c AS kind = 'c';
ORDER BY t PATTERN (a !b c) WITHIN 1000;
ORDER BY t PATTERN (a ->> b(->)+ ->> c(.){2,} d(->>)*) WITHIN '500 ms' PREVIOUS TO CURRENT;
ORDER BY t PATTERN (a -> b+ UNTIL stop -> c) WITHIN INTERVAL '1 12:30:00.250' DAY TO SECOND DEFINE stop AS price > 5;
ORDER BY t WITHIN INTERVAL '2' DAY FIRST TO LAST PATTERN (a -> b);
ORDER BY t PATTERN (a ->> b) WITHIN INTERVAL '1.5' SECOND SELECT ALL MATCHES CONSUME SELECTED EVENTS LIMIT 3 PER START LIMIT 10 PER PARTITION;
ORDER BY t PATTERN (a ->> b) SELECT PREFERRED MATCHES CONSUME ALL EVENTS LIMIT 7;
ORDER BY t
MEASURES SUM(u.price) AS total, COUNT(u.*) AS n, CLASSIFIER(u) AS label, LAST(u.price, 1) AS before, FIRST(w.price) AS opened
PATTERN (a b c) SUBSET u = (a, b), w = (b, c);
MEASURES 'it''s' AS quoted, 1.50 AS exact, 1e3 AS inexact, -7 AS whole, NULL AS nothing, TRUE AS yes
PATTERN (a);
MEASURES DATE '2026-01-31' AS d, TIMESTAMP '2026-01-31 10:20:30.5' AS at, TIMESTAMP '2026-01-31 10:20:30 +02:00' AS zoned,
  INTERVAL '90' SECOND AS wait, INTERVAL -'3' DAY AS back, X'00ff' AS raw, BIGINT '12' AS big, DECIMAL '1.50' AS money, VARCHAR 'x' AS text
PATTERN (a);
MEASURES CASE WHEN x > 1 THEN 'many' WHEN x = 1 THEN 'one' ELSE 'none' END AS words, CASE kind WHEN 'a' THEN 1 END AS code
PATTERN (a);
MEASURES CAST(x AS decimal(10, 2)) AS money, TRY_CAST(y AS bigint) AS maybe, z::double AS d, CAST(w AS array(varchar(10))) AS many,
  CAST(v AS map(varchar, timestamp(3) with time zone)) AS m, CAST(r AS row(bid double, ask double)) AS quote
PATTERN (a);
MEASURES EXTRACT(YEAR FROM ts) AS y, SUBSTRING(name FROM 2 FOR 3) AS part, POSITION('x' IN name) AS place,
  TRIM(LEADING '0' FROM code) AS short, TRIM(name) AS trimmed, ts AT TIME ZONE 'UTC' AS zoned
PATTERN (a);
MEASURES a.quote.bid AS bid, tags[1] AS tag, ARRAY[1, 2][1] AS one, (pick(x)).bid AS picked, COALESCE(x, y, 0) AS z, IF(x > 0, 1, 2) AS w
PATTERN (a);
MEASURES COUNT(DISTINCT kind) AS kinds, array_agg(LOWER(CLASSIFIER())) AS labels, max_by(x, y) AS best, COUNT() AS n
PATTERN (a+);
MEASURES PREV(LAST(a.x, 2), 3) AS far, NEXT(FIRST(a.x + b.x)) AS near, RUNNING LAST(x) AS r, FINAL FIRST(x, 1) AS f
PATTERN (a b);
MEASURES (SELECT 'x') AS one, 'X' IN (SELECT ')' FROM t) AS two, EXISTS (SELECT (1)) AS three, x NOT IN (SELECT 1) AS four
PATTERN (a) DEFINE a AS (SELECT true);
PATTERN (a) DEFINE a AS NOT (x = 1 OR y <> 2) AND z BETWEEN 1 AND 2 + 3 OR w NOT BETWEEN -1 AND 1;
PATTERN (a) DEFINE a AS name LIKE 'a!_%' ESCAPE '!' AND name NOT LIKE '%b' AND kind IN ('a', 'b') AND kind NOT IN (1);
PATTERN (a) DEFINE a AS x IS NULL OR y IS NOT NULL OR z IS TRUE OR w IS NOT FALSE OR p IS DISTINCT FROM q OR p IS NOT DISTINCT FROM q;
PATTERN (a) DEFINE a AS - x + y * (z - 1) - (u - v) % 3 || 'a' < 'b';
PATTERN (a "b"+ "C c") DEFINE "b" AS "b".value < PREV("b".value), "C c" AS "C c".value > 0 AND A.value = "a".value;
PATTERN (a b) -- a comment
DEFINE /* another
one */ a AS x > 1;
ORDER BY ts PATTERN (a b) OVER COUNT (1000 SLIDE 50 OFFSET -10) WITH DUPLICATES NUMBERED INSTANCES 8 SCHEDULE BATCHES OF 100 DEFINE a AS x > 1;
ORDER BY ts OVER TIME (INTERVAL '10' SECOND SLIDE INTERVAL '1' SECOND OFFSET INTERVAL '-1' SECOND) INSTANCES 2 SCHEDULE ROUND ROBIN PATTERN (a);
ORDER BY ts OVER TIME ('1 hour') PATTERN (a) INSTANCES 3 SCHEDULE BY KEY;
ORDER BY ts OVER TIME (100 OFFSET -7) NUMBERED PATTERN (a) INSTANCES 3 SCHEDULE LEAST LOADED;
ORDER BY ts PATTERN (a) OVER SESSION (INTERVAL '30' SECOND) INSTANCES 4;
PATTERN (a) OVER BETWEEN (kind = 'start' AND x BETWEEN 1 AND 2) AND (kind = 'end') WITH DUPLICATES INSTANCES 4 SCHEDULE BATCHES;
PATTERN (a) OVER LANDMARK (kind = 'reset') SUBSET u = (a);
PATTERN (a) OVER LANDMARK NUMBERED DEFINE a AS x > 1

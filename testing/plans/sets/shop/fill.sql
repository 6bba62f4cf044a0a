-- Two depots with ten districts each, at any scale; the rest grows.
insert into depot select seq, concat('depot', seq), 'street', 'town', '123456789', 0.1, 300000 from seq_1_to_2;
insert into district
  select 1 + (seq - 1) div 10, 1 + (seq - 1) % 10, concat('r', seq), 'street', 'town', 0.05, 30000, 3001 from seq_1_to_20;
insert into buyer
  select 1 + (n.seq - 1) div 10, 1 + (n.seq - 1) % 10, b.seq, concat('first', crc32(concat(n.seq, '-', b.seq)) % 1000), 'OE',
    concat('last', crc32(b.seq) % 300), 'some street 15', 'some town', '1234567890123456', '2026-01-01',
    if(crc32(b.seq * 3) % 10, 'GC', 'BC'), 50000, 0.1, -10, 10, 1, repeat('n', 300)
  from seq_1_to_20 n join seq_1_to_@1500@ b;
insert into payment
  select b_id, r_id, d_id, r_id, d_id, '2026-01-02', 10, repeat('p', 20) from buyer;
insert into sale
  select 1 + (n.seq - 1) div 10, 1 + (n.seq - 1) % 10, s.seq, 1 + crc32(concat(s.seq, 's')) % @1500@,
    '2026-01-03' + interval s.seq minute, if(s.seq <= @1050@, 1 + crc32(s.seq) % 10, null), 10, 1
  from seq_1_to_20 n join seq_1_to_@1500@ s;
insert into pending select d_id, r_id, s_id from sale where carrier is null;
insert into article select seq, seq % 10000, concat('article', crc32(seq)), 1 + seq % 100, repeat('a', 30) from seq_1_to_@20000@;
insert into supply
  select d.seq, a.seq, 10 + crc32(concat(a.seq, 'q', d.seq)) % 91, repeat('x', 24), repeat('y', 24), 0, 0, 0, repeat('z', 40)
  from seq_1_to_2 d join seq_1_to_@20000@ a;
insert into sale_line
  select s.d_id, s.r_id, s.s_id, l.seq, 1 + crc32(concat(s.d_id, s.r_id, s.s_id, l.seq)) % @20000@, s.d_id,
    if(s.carrier is null, null, s.made_at), 5, 10, repeat('l', 24)
  from sale s join seq_1_to_10 l;

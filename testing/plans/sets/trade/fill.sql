-- At full size about 100 MB: 120,000 purchases with five items each on average.
insert into area select seq - 1, elt(seq, 'NORTH', 'EAST', 'SOUTH', 'WEST', 'ISLES'), repeat('r', 80) from seq_1_to_5;
insert into country select seq - 1, concat('COUNTRY', seq - 1), (seq - 1) % 5, repeat('c', 80) from seq_1_to_25;
insert into vendor
  select seq, concat('Vendor#', lpad(seq, 9, '0')), concat('street ', crc32(seq)), crc32(concat(seq, 'v')) % 25,
    concat(10 + crc32(concat(seq, 'v')) % 25, '-', lpad(crc32(seq) % 10000000, 7, '0')), crc32(concat(seq, 'b')) % 1100000 / 100 - 1000,
    if(crc32(concat(seq, 'n')) % 500 = 0, 'here Client said Complaints often', repeat('v', 60)) from seq_1_to_@1000@;
insert into product
  select seq, concat(elt(1 + crc32(seq) % 10, 'green', 'blue', 'red', 'forest', 'ivory', 'navy', 'linen', 'plum', 'rose', 'sky'), ' ',
      elt(1 + crc32(concat(seq, 'c')) % 10, 'green', 'lemon', 'red', 'azure', 'ivory', 'black', 'white', 'pink', 'rose', 'snow')),
    concat('Maker#', 1 + crc32(concat(seq, 'm')) % 5), concat('Brand#', 1 + crc32(concat(seq, 'm')) % 5, 1 + crc32(concat(seq, 'n')) % 5),
    concat(elt(1 + crc32(concat(seq, 't')) % 6, 'STANDARD', 'SMALL', 'MEDIUM', 'LARGE', 'ECONOMY', 'PROMO'), ' ',
      elt(1 + crc32(concat(seq, 'u')) % 5, 'PLATED', 'BRUSHED', 'POLISHED', 'BURNT', 'CUT'), ' ',
      elt(1 + crc32(concat(seq, 'w')) % 5, 'TIN', 'NICKEL', 'BRASS', 'STEEL', 'COPPER')),
    1 + crc32(concat(seq, 's')) % 50,
    concat(elt(1 + crc32(concat(seq, 'x')) % 5, 'SM', 'LG', 'MED', 'JUMBO', 'WRAP'), ' ', elt(1 + crc32(concat(seq, 'y')) % 4, 'CASE', 'BOX', 'BAG', 'PKG')),
    900 + seq % 1000, repeat('p', 15) from seq_1_to_@20000@;
insert ignore into offer
  select p.seq, 1 + (p.seq * 7 + s.seq * @251@ + p.seq div @1000@) % @1000@, crc32(concat(p.seq, s.seq)) % 9999, crc32(concat(s.seq, p.seq)) % 100000 / 100,
    repeat('o', 120) from seq_1_to_@20000@ p join seq_1_to_4 s;
insert into client
  select seq, concat('Client#', lpad(seq, 9, '0')), concat('street ', crc32(seq)), crc32(concat(seq, 'n')) % 25,
    concat(10 + crc32(concat(seq, 'n')) % 25, '-', lpad(crc32(seq) % 10000000, 7, '0')), crc32(concat(seq, 'b')) % 1100000 / 100 - 1000,
    elt(1 + crc32(concat(seq, 's')) % 5, 'CARS', 'BUILDING', 'FURNITURE', 'MACHINES', 'HOUSEHOLD'), repeat('k', 70) from seq_1_to_@15000@;
insert into purchase
  select (seq div 8) * 32 + seq % 8, 1 + (crc32(concat(seq, 'c')) % @15000@) div 3 * 3, elt(1 + crc32(concat(seq, 'o')) % 3, 'O', 'F', 'P'),
    crc32(seq) % 50000000 / 100, '1992-01-01' + interval crc32(concat(seq, 'd')) % 2406 day,
    elt(1 + crc32(concat(seq, 'u')) % 5, '1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW'), concat('Clerk#', lpad(crc32(seq) % 1000, 9, '0')), 0,
    if(crc32(concat(seq, 'z')) % 80 = 0, 'some special parcels of requests', repeat('u', 45)) from seq_1_to_@120000@;
insert into item
  select p.purchase_id, l.seq, crc32(concat(p.purchase_id, 'p', l.seq)) % @20000@ + 1, 1, 1 + crc32(concat(p.purchase_id, 'q', l.seq)) % 50,
    900 + crc32(concat(l.seq, p.purchase_id)) % 90000, (crc32(concat(p.purchase_id, 'd', l.seq)) % 11) / 100, (crc32(concat(p.purchase_id, 't', l.seq)) % 9) / 100,
    elt(1 + crc32(concat(p.purchase_id, 'r', l.seq)) % 3, 'R', 'A', 'N'), elt(1 + crc32(concat(p.purchase_id, 'x', l.seq)) % 2, 'O', 'F'),
    p.made_on + interval 1 + crc32(concat(p.purchase_id, 's', l.seq)) % 121 day, p.made_on + interval 30 + crc32(concat(p.purchase_id, 'm', l.seq)) % 61 day,
    p.made_on + interval 2 + crc32(concat(p.purchase_id, 's', l.seq)) % 121 + crc32(concat(p.purchase_id, 'e', l.seq)) % 30 day,
    elt(1 + crc32(concat(p.purchase_id, 'i', l.seq)) % 4, 'DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'),
    elt(1 + crc32(concat(p.purchase_id, 'y', l.seq)) % 7, 'REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB'), repeat('i', 25)
  from purchase p join seq_1_to_9 l where l.seq <= 1 + crc32(p.purchase_id) % 9;
update item set vendor_id = 1 + (product_id * 7 + (1 + crc32(concat(purchase_id, 'v', line)) % 4) * @251@ + product_id div @1000@) % @1000@;

insert into land (name) select concat('Land', seq) from seq_1_to_100;
insert into town (name, land_id) select concat('Town', seq), 1 + crc32(seq) % 100 from seq_1_to_600;
insert into place (street, district, town_id, zip, phone) select concat(seq, ' Some Street'), concat('D', crc32(seq) % 300), 1 + crc32(concat(seq, 't')) % 600, crc32(seq) % 99999, lpad(crc32(seq), 12, '0') from seq_1_to_603;
insert into tongue (name) values ('English'), ('Italian'), ('Japanese'), ('Mandarin'), ('French'), ('German');
insert into genre (name) select concat('Genre', seq) from seq_1_to_16;
insert into performer (first_name, last_name) select concat('First', crc32(seq) % 120), concat('Last', crc32(concat(seq, 'l')) % 120) from seq_1_to_200;
insert into movie (title, story, year, tongue_id, days, rate, minutes, replacement, rating, extras)
  select concat(elt(1 + crc32(seq) % 8, 'DARK', 'BRIGHT', 'LOST', 'SECRET', 'WILD', 'QUIET', 'GOLDEN', 'LAST'), ' ', concat('TITLE', seq)), repeat('A story of something. ', 5), 2006, 1, 3 + crc32(concat(seq, 'd')) % 5, 0.99 + crc32(concat(seq, 'r')) % 3 * 2, 46 + crc32(concat(seq, 'm')) % 140, 9.99 + crc32(concat(seq, 'c')) % 21, elt(1 + crc32(concat(seq, 'g')) % 5, 'G', 'PG', 'PG-13', 'R', 'NC-17'), 1 + crc32(concat(seq, 'e')) % 15 from seq_1_to_1000;
insert ignore into casting (performer_id, movie_id) select 1 + crc32(concat(m.seq, 'p', n.seq)) % 200, m.seq from seq_1_to_1000 m join seq_1_to_6 n where n.seq <= 4 + crc32(m.seq) % 4;
insert into movie_genre (movie_id, genre_id) select seq, 1 + crc32(concat(seq, 'g')) % 16 from seq_1_to_1000;
insert into branch (manager_id, place_id) values (1, 1), (2, 2);
insert into clerk (first_name, last_name, place_id, branch_id) values ('Ann', 'One', 3, 1), ('Bob', 'Two', 4, 2);
insert into member (branch_id, first_name, last_name, email, place_id, is_active, joined) select 1 + crc32(seq) % 2, concat('First', crc32(concat(seq, 'f')) % 400), concat('Name', seq), concat('m', seq, '.example.org'), 5 + seq % 598, crc32(concat(seq, 'a')) % 40 > 0, '2006-02-14 22:04:36' from seq_1_to_599;
insert into copy (movie_id, branch_id) select m.seq, 1 + crc32(concat(m.seq, n.seq)) % 2 from seq_1_to_1000 m join seq_1_to_8 n where n.seq <= 2 + crc32(m.seq) % 6 and m.seq % 25 > 0;
insert into loan (lent_at, copy_id, member_id, returned_at, clerk_id) select '2005-05-24' + interval seq * 5 + crc32(seq) % 5 minute, 1 + crc32(concat(seq, 'c')) % 4500, 1 + crc32(concat(seq, 'm')) % 599, if(crc32(concat(seq, 'o')) % 88, '2005-05-24' + interval seq * 5 + crc32(concat(seq, 'h')) % 14000 minute, null), 1 + crc32(concat(seq, 's')) % 2 from seq_1_to_@16044@;
insert into fee (member_id, clerk_id, loan_id, amount, paid_at) select member_id, clerk_id, loan_id, 0.99 + crc32(loan_id) % 10, lent_at from loan;
